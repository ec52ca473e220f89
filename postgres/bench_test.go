package postgres_test

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/postgres"
)

// once takes a lock of that name and releases it.
type once func(ctx context.Context, name string) error

// bench is one server and one pool, which the contenders share.
type bench struct {
	server *lab.Postgres
	pool   *pgxpool.Pool
	locks  *locker.Client
}

func newBench(b *testing.B, opts ...lab.Option) *bench {
	s := &bench{server: lab.StartPostgres(b, opts...)}
	var err error
	s.pool, err = pgxpool.New(b.Context(), s.server.URL(s.server.Addr(), "sslmode=disable", "pool_max_conns=32"))
	require.NoError(b, err)
	backend, err := postgres.New(s.pool, nil)
	require.NoError(b, err)
	s.locks, err = locker.New(backend, nil)
	require.NoError(b, err)
	b.Cleanup(func() {
		require.NoError(b, s.locks.Close())
		require.NoError(b, backend.Close())
		s.pool.Close()
	})
	s.server.Exec(b,
		`CREATE TABLE raw (name bytea PRIMARY KEY, owner text NOT NULL, expires timestamptz NOT NULL)`)
	return s
}

const rawTake = `INSERT INTO raw AS r VALUES ($1, $2, clock_timestamp() + interval '30 s') ON CONFLICT (name)
	DO UPDATE SET owner = excluded.owner, expires = excluded.expires WHERE r.expires <= clock_timestamp()`

// raw is what the statements cost by themselves: no token, nobody woken, nothing renewed or taken back.
func (s *bench) raw(ctx context.Context, name string) error {
	owner := strconv.FormatInt(time.Now().UnixNano(), 16)
	tag, err := s.pool.Exec(ctx, rawTake, []byte(name), owner)
	if err != nil || tag.RowsAffected() != 1 {
		return fmt.Errorf("INSERT: %v, %w", tag, err)
	}
	tag, err = s.pool.Exec(ctx, `DELETE FROM raw WHERE name = $1 AND owner = $2`, []byte(name), owner)
	if err != nil || tag.RowsAffected() != 1 {
		return fmt.Errorf("DELETE: %v, %w", tag, err)
	}
	return nil
}

// advisory is the lock that PostgreSQL has itself: it keeps a connection for as long as it is held.
func (s *bench) advisory(ctx context.Context, name string) error {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	if _, err = conn.Exec(ctx, `SELECT pg_advisory_lock(hashtextextended($1, 0))`, name); err != nil {
		return err
	}
	_, err = conn.Exec(ctx, `SELECT pg_advisory_unlock(hashtextextended($1, 0))`, name)
	return err
}

func (s *bench) locker(ctx context.Context, name string) error {
	l, err := s.locks.Lock(ctx, name)
	if err != nil {
		return err
	}
	return l.Unlock(ctx)
}

// turns is how often the contenders of a topic take turns in one run.
const turns = 3

// BenchmarkUncontended is one caller that takes a free lock and releases it: on a server that syncs its disk,
// as they are configured, and on one that does not, where nothing but the statements is left.
func BenchmarkUncontended(b *testing.B) {
	for _, sync := range []string{"off", "on"} {
		b.Run("fsync="+sync, func(b *testing.B) {
			s := newBench(b, lab.WithConfig("fsync", sync))
			run := func(name string, pair once) {
				b.Run(name, func(b *testing.B) {
					ctx, cancel := context.WithCancel(b.Context())
					defer cancel()
					require.NoError(b, callers(ctx, 1, 50, pair)) // connections, statements
					for b.Loop() {
						if err := pair(ctx, "job"); err != nil {
							b.Fatal(err)
						}
					}
				})
			}
			for range turns {
				run("raw", s.raw)
				run("locker", s.locker)
			}
		})
	}
}

// BenchmarkCallers256 is 256 goroutines that do so with names of their own. advisory has a connection for
// each lock that is held: as many as the pool has.
func BenchmarkCallers256(b *testing.B) {
	const goroutines = 256
	s := newBench(b)
	run := func(name string, pair once) {
		b.Run(name, func(b *testing.B) {
			ctx, cancel := context.WithCancel(b.Context())
			defer cancel()
			require.NoError(b, callers(ctx, goroutines, 4*goroutines, pair))
			b.ResetTimer()
			require.NoError(b, callers(ctx, goroutines, b.N, pair))
		})
	}
	for range turns {
		run("raw", s.advisory)
		run("locker", s.locker)
		run("statements", s.raw)
	}
}

// callers shares n pairs out among goroutines with names of their own.
func callers(ctx context.Context, goroutines, n int, pair once) error {
	var all sync.WaitGroup
	var left atomic.Int64
	left.Store(int64(n))
	failed := make(chan error, goroutines)
	for i := range goroutines {
		all.Go(func() {
			name := "job-" + strconv.Itoa(i)
			for left.Add(-1) >= 0 {
				if err := pair(ctx, name); err != nil {
					failed <- err
					return
				}
			}
		})
	}
	all.Wait()
	close(failed)
	return <-failed
}
