package pgxguard_test

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/golockers/locker"
	"github.com/golockers/locker/fencing"
	"github.com/golockers/locker/fencing/pgxguard"
	"github.com/golockers/locker/fencing/sqlguard"
	"github.com/golockers/locker/internal/guardtest"
	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/internal/sqlstate"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t *testing.T, url string) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), url)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return pool
}

func TestSuite(t *testing.T) {
	s := lab.StartPostgres(t)
	url := s.URL(s.Addr(), "sslmode=disable")
	g, err := pgxguard.New(nil)
	require.NoError(t, err)
	require.NoError(t, g.Create(t.Context(), open(t, url)))
	s.Exec(t, "CREATE TABLE resources (name text PRIMARY KEY, value text NOT NULL)")
	for _, level := range []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.Serializable} {
		t.Run(string(level), func(t *testing.T) {
			store := func(t *testing.T, url string) guardtest.Store {
				pool := open(t, url)
				return guardtest.Store{
					MaxToken: math.MaxInt64, AnyName: true,
					Write: func(ctx context.Context, r string, token fencing.Token, value string) error {
						return g.Do(ctx, pool, pgx.TxOptions{IsoLevel: level}, r, token,
							func(ctx context.Context, tx pgx.Tx) error {
								_, err := tx.Exec(ctx, `INSERT INTO resources VALUES ($1, $2)
									ON CONFLICT (name) DO UPDATE SET value = excluded.value`, r, value)
								return err
							})
					},
					Raise: func(ctx context.Context, r string, token fencing.Token) error {
						return g.Raise(ctx, pool, r, token)
					},
					Forget: func(ctx context.Context, r string) error {
						_, err := pool.Exec(ctx, "DELETE FROM locker_marks WHERE resource = $1", []byte(r))
						return err
					},
					Read: func(ctx context.Context, r string) (value string, err error) {
						err = pool.QueryRow(ctx, "SELECT value FROM resources WHERE name = $1", r).Scan(&value)
						if errors.Is(err, pgx.ErrNoRows) {
							err = nil
						}
						return value, err
					},
					Mark: func(ctx context.Context, r string) (mark fencing.Token, err error) {
						err = pool.QueryRow(ctx, "SELECT coalesce(max(token), 0) FROM locker_marks WHERE resource = $1",
							[]byte(r)).Scan(&mark)
						return mark, err
					},
					Again: func(err error) bool { return sqlstate.Met(sqlstate.Of(err)) },
				}
			}
			s.Exec(t, "TRUNCATE resources, locker_marks")
			guardtest.Run(t, func(t *testing.T) guardtest.Store { return store(t, url) })
			guardtest.Faults(t, func(t *testing.T) guardtest.Proxied {
				s.Exec(t, "TRUNCATE resources, locker_marks")
				p := lab.StartProxy(t, s.Addr())
				through, direct := store(t, s.URL(p.Addr(), "sslmode=disable")), store(t, url)
				through.Read = direct.Read
				return guardtest.Proxied{Store: through, Proxy: p, Later: direct.Write, Commit: "\vcommit", Locks: true}
			})
		})
	}
}

// A transaction that was refused, for whatever reason, cannot be committed.
func TestWhatIsRefusedCannotBeCommitted(t *testing.T) {
	s := lab.StartPostgres(t)
	pool := open(t, s.URL(s.Addr(), "sslmode=disable"))
	_, err := pgxguard.New(&sqlguard.Options{Table: "a b"})
	require.ErrorIs(t, err, locker.ErrInvalid)
	g, err := pgxguard.New(&sqlguard.Options{Table: "own_marks"})
	require.NoError(t, err)
	require.NoError(t, g.Create(t.Context(), pool))
	require.NoError(t, g.Raise(t.Context(), pool, "r", 10))
	for token, want := range map[fencing.Token]error{
		9: fencing.ErrStale, 0: fencing.ErrMissing, math.MaxUint64: locker.ErrInvalid,
	} {
		tx, err := pool.Begin(t.Context())
		require.NoError(t, err)
		require.ErrorIs(t, g.Check(t.Context(), tx, "r", token), want)
		require.ErrorIs(t, tx.Commit(t.Context()), pgx.ErrTxClosed)
	}
	own := errors.New("changed my mind")
	require.Equal(t, own, g.Do(t.Context(), pool, pgx.TxOptions{}, "r", 12,
		func(context.Context, pgx.Tx) error { return own }))
	err = g.Do(t.Context(), pool, pgx.TxOptions{}, "r", 12, func(ctx context.Context, tx pgx.Tx) error {
		_ = g.Check(ctx, tx, "r", 9) // refused, and nobody looks
		return nil
	})
	require.ErrorIs(t, err, pgx.ErrTxClosed)
	require.NotErrorIs(t, err, fencing.ErrUnknown)
	assert.Equal(t, "10", s.Query(t, "SELECT token FROM own_marks"))

	// A crash would empty the marks, and not what they protect.
	for _, how := range []string{"UNLOGGED", "LOGGED"} {
		s.Exec(t, "ALTER TABLE own_marks SET "+how)
		for _, resource := range []string{"r", "new when " + how} {
			err = g.Raise(t.Context(), pool, resource, 11)
			if how == "LOGGED" {
				require.NoError(t, err)
				continue
			}
			require.ErrorContains(t, err, "a crash would empty it")
			require.NotErrorIs(t, err, fencing.ErrStale)
			require.NotErrorIs(t, err, locker.ErrUnavailable)
		}
	}
	assert.Equal(t, "2", s.Query(t, "SELECT count(*) FROM own_marks WHERE token = 11"))
}

// A server that falls silent in the middle keeps nobody for long whose context is over.
func TestARollbackEndsOnASilentServer(t *testing.T) {
	s := lab.StartPostgres(t)
	p := lab.StartProxy(t, s.Addr())
	pool := open(t, s.URL(p.Addr(), "sslmode=disable"))
	t.Cleanup(func() { p.Set(lab.Reset) })
	g, err := pgxguard.New(nil)
	require.NoError(t, err)
	require.NoError(t, g.Create(t.Context(), pool))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- g.Do(ctx, pool, pgx.TxOptions{}, "r", 1, func(ctx context.Context, _ pgx.Tx) error {
			p.Set(lab.Hold)
			cancel()
			return ctx.Err()
		})
	}()
	select {
	case err := <-ended:
		require.ErrorIs(t, err, context.Canceled)
	case <-time.After(time.Minute):
		require.Fail(t, "it waits for ever")
	}
}
