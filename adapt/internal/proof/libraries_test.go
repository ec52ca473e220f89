package proof_test

import (
	"context"
	"crypto/x509"
	"time"

	"github.com/caddyserver/certmagic"
	"github.com/go-co-op/gocron/v2"

	"github.com/golockers/locker"
	"github.com/golockers/locker/adapt"
)

var (
	_ gocron.Locker              = adapt.Gocron[gocron.Lock](nil)
	_ certmagic.Storage          = storage{}
	_ certmagic.TryLocker        = storage{}
	_ certmagic.LockLeaseRenewer = storage{}
)

// library does a job by one of the libraries, and returns when it is done: work is what
// the job does.
type library func(ctx context.Context, l locker.Locker, dir string, work func()) error

var libraries = map[string]library{
	"gocron locker": gocronLocker,
	"certmagic":     obtainCertificate,
}

func gocronLocker(_ context.Context, l locker.Locker, _ string, work func()) error {
	s, err := gocron.NewScheduler(gocron.WithDistributedLocker(adapt.Gocron[gocron.Lock](l)))
	if err != nil {
		return err
	}
	done := make(chan struct{})
	_, err = s.NewJob(gocron.DurationJob(20*time.Millisecond), gocron.NewTask(func() { work(); close(done) }),
		gocron.WithName("report"), gocron.WithSingletonMode(gocron.LimitModeReschedule), gocron.WithLimitedRuns(1))
	if err != nil {
		return err
	}
	s.Start()
	<-done
	return s.Shutdown()
}

type files struct{ certmagic.Storage }

type storage struct {
	files
	*adapt.CertmagicLocker
}

func obtainCertificate(ctx context.Context, l locker.Locker, dir string, work func()) error {
	var config *certmagic.Config
	cache := certmagic.NewCache(certmagic.CacheOptions{
		GetConfigForCert: func(certmagic.Certificate) (*certmagic.Config, error) { return config, nil },
	})
	defer cache.Stop()
	config = certmagic.New(cache, certmagic.Config{
		Storage: storage{files{&certmagic.FileStorage{Path: dir}}, adapt.Certmagic(l)},
		Issuers: []certmagic.Issuer{issuer(work)},
	})
	return config.ObtainCertSync(ctx, "www.example.com")
}

// issuer is a certificate authority that works before it signs.
type issuer func()

func (issuer) IssuerKey() string { return "test" }

func (work issuer) Issue(context.Context, *x509.CertificateRequest) (*certmagic.IssuedCertificate, error) {
	work()
	return &certmagic.IssuedCertificate{Certificate: []byte("signed")}, nil
}
