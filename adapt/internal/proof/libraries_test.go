package proof_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"database/sql"
	"encoding/pem"
	"math/big"
	"time"

	"github.com/caddyserver/certmagic"
	"github.com/go-co-op/gocron/v2"
	"github.com/pressly/goose/v3"
	_ "modernc.org/sqlite"

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
	"goose":         migrate,
	"certmagic":     obtainCertificate,
}

func gocronLocker(ctx context.Context, l locker.Locker, _ string, work func()) error {
	return schedule(ctx, work, gocron.WithDistributedLocker(adapt.Gocron[gocron.Lock](l)))
}

func schedule(_ context.Context, work func(), opt gocron.SchedulerOption) error {
	s, err := gocron.NewScheduler(opt)
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

// migrate needs no adapter.
func migrate(ctx context.Context, l locker.Locker, dir string, work func()) error {
	db, err := sql.Open("sqlite", dir+"/database")
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	p, err := goose.NewProvider(goose.DialectSQLite3, db, nil,
		goose.WithGoMigrations(goose.NewGoMigration(1, &goose.GoFunc{
			RunDB: func(context.Context, *sql.DB) error { work(); return nil },
		}, nil)))
	if err != nil {
		return err
	}
	return locker.Do(ctx, l, "migrations", func(ctx context.Context, _ *locker.Lease) error {
		_, err := p.Up(ctx)
		return err
	})
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

func (work issuer) Issue(_ context.Context, csr *x509.CertificateRequest) (
	*certmagic.IssuedCertificate, error) {
	work()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	c := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: csr.DNSNames,
		NotBefore: time.Now(), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, csr.PublicKey, key)
	if err != nil {
		return nil, err
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return &certmagic.IssuedCertificate{Certificate: text}, nil
}
