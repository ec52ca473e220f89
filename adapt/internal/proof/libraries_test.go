package proof_test

import (
	"context"
	"crypto/x509"
	"database/sql"
	"io"
	"time"

	"github.com/caddyserver/certmagic"
	"github.com/go-co-op/gocron/v2"
	"github.com/golang-migrate/migrate/v4"
	"github.com/golang-migrate/migrate/v4/database"
	databasestub "github.com/golang-migrate/migrate/v4/database/stub"
	"github.com/golang-migrate/migrate/v4/source"
	sourcestub "github.com/golang-migrate/migrate/v4/source/stub"
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
	"gocron locker":  gocronLocker,
	"certmagic":      obtainCertificate,
	"goose":          gooseUp,
	"golang-migrate": migrateUp,
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

// gooseUp needs no adapter: the recipe is that of package adapt.
func gooseUp(ctx context.Context, l locker.Locker, dir string, work func()) error {
	return locker.Do(ctx, l, "migrations", func(ctx context.Context) error {
		db, err := sql.Open("sqlite", dir+"/database")
		if err != nil {
			return err
		}
		defer func() { _ = db.Close() }()
		provider, err := goose.NewProvider(goose.DialectSQLite3, db, nil,
			goose.WithGoMigrations(goose.NewGoMigration(1, &goose.GoFunc{
				RunDB: func(context.Context, *sql.DB) error { work(); return nil },
			}, nil)))
		if err != nil {
			return err
		}
		_, err = provider.Up(ctx)
		return err
	})
}

// running is a database in memory, in which a migration works.
type running struct {
	database.Driver
	work func()
}

func (r running) Run(script io.Reader) error { r.work(); return r.Driver.Run(script) }

// migrateUp needs no adapter, either.
func migrateUp(ctx context.Context, l locker.Locker, _ string, work func()) error {
	db, err := databasestub.WithInstance(nil, &databasestub.Config{})
	if err != nil {
		return err
	}
	files, err := sourcestub.WithInstance(nil, &sourcestub.Config{})
	if err != nil {
		return err
	}
	files.(*sourcestub.Stub).Migrations.Append(&source.Migration{Version: 1, Direction: source.Up, Identifier: "CREATE"})
	m, err := migrate.NewWithInstance("stub", files, "stub", running{db, work})
	if err != nil {
		return err
	}
	return locker.Do(ctx, l, "migrations", func(ctx context.Context) error {
		stop := context.AfterFunc(ctx, func() { m.GracefulStop <- true }) // before the next migration
		defer stop()
		return m.Up()
	})
}
