// A module of its own, so that redsync is no dependency of the library.
module github.com/golockers/locker/internal/redsyncbench

go 1.26.0

require (
	github.com/go-redsync/redsync/v4 v4.18.1
	github.com/golockers/locker v0.0.0
	github.com/redis/go-redis/v9 v9.23.0
)

require golang.org/x/text v0.43.0 // indirect

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/jackc/pgpassfile v1.0.0 // indirect
	github.com/jackc/pgservicefile v0.0.0-20240606120523-5a60cdf6a761 // indirect
	github.com/jackc/pgx/v5 v5.12.0 // indirect
	github.com/jackc/puddle/v2 v2.2.3 // indirect
	go.uber.org/atomic v1.12.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
)

replace github.com/golockers/locker => ../..
