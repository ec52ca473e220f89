// A module of its own, so that the drivers are no dependency of the library.
module github.com/golockers/locker/internal/sqltest

go 1.26.0

replace (
	github.com/golockers/locker => ../..
	github.com/golockers/locker/backends => ../../backends
	github.com/golockers/locker/cas/mysql => ../../cas/mysql
	github.com/golockers/locker/compare => ../../compare
	github.com/golockers/locker/etcd => ../../etcd
	github.com/golockers/locker/internal/redisnode => ../redisnode
	github.com/golockers/locker/postgres => ../../postgres
	github.com/golockers/locker/redlock => ../../redlock
	github.com/golockers/locker/single => ../../single
	github.com/golockers/locker/zookeeper => ../../zookeeper
)

require (
	github.com/go-sql-driver/mysql v1.10.1
	github.com/golockers/locker v0.0.0
	github.com/golockers/locker/cas/mysql v0.0.0
	github.com/golockers/locker/compare v0.0.0-00010101000000-000000000000
	github.com/jackc/pgx/v5 v5.9.2
	github.com/stretchr/testify v1.11.1
	go.uber.org/goleak v1.3.0
	modernc.org/sqlite v1.61.1
)

require (
	filippo.io/edwards25519 v1.2.0 // indirect
	github.com/davecgh/go-spew v1.1.1 // indirect
	github.com/dustin/go-humanize v1.1.0 // indirect
	github.com/google/uuid v1.6.0 // indirect
	github.com/inconshreveable/mousetrap v1.1.0 // indirect
	github.com/jackc/pgpassfile v1.0.0 // indirect
	github.com/jackc/pgservicefile v0.0.0-20240606120523-5a60cdf6a761 // indirect
	github.com/jackc/puddle/v2 v2.2.2 // indirect
	github.com/mattn/go-isatty v0.0.24 // indirect
	github.com/ncruces/go-strftime v1.1.0 // indirect
	github.com/pmezard/go-difflib v1.0.0 // indirect
	github.com/remyoudompheng/bigfft v0.0.0-20230129092748-24d4a6f8daec // indirect
	github.com/rogpeppe/go-internal v1.16.0 // indirect
	github.com/spf13/cobra v1.8.0 // indirect
	github.com/spf13/pflag v1.0.5 // indirect
	golang.org/x/sync v0.24.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
	golang.org/x/text v0.32.0 // indirect
	gopkg.in/yaml.v3 v3.0.1 // indirect
	modernc.org/libc v1.79.0 // indirect
	modernc.org/mathutil v1.7.1 // indirect
	modernc.org/memory v1.12.1 // indirect
)
