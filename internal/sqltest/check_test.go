//go:build unix

package sqltest_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/fencing"
	"github.com/golockers/locker/fencing/sqlguard"
	"github.com/golockers/locker/internal/guardtest"
	"github.com/golockers/locker/internal/lab"
)

// testSuite is what every guard has to pass, at the level at which transactions meet the most.
func testSuite(t *testing.T, s *store) {
	first := s.open(t)
	g, marks := s.guard(t, first)
	values := table("values_of")
	s.exec(t, first,
		"CREATE TABLE "+values+" (name VARCHAR(40) NOT NULL PRIMARY KEY, value VARCHAR(40) NOT NULL)")
	store := func(t *testing.T, dsn string) guardtest.Store {
		db := s.openDSN(t, dsn)
		return guardtest.Store{
			MaxToken: math.MaxInt64, AnyName: true, Again: s.again,
			Write: func(ctx context.Context, r string, token fencing.Token, value string) error {
				return g.Do(ctx, db, nil, r, token, func(ctx context.Context, tx *sql.Tx) error {
					_, err := tx.ExecContext(ctx, "DELETE FROM "+values+" WHERE name = "+s.number(1), r)
					if err != nil {
						return err
					}
					_, err = tx.ExecContext(ctx,
						"INSERT INTO "+values+" VALUES ("+s.number(1)+", "+s.number(2)+")", r, value)
					return err
				})
			},
			Raise: func(ctx context.Context, r string, token fencing.Token) error {
				return g.Raise(ctx, db, r, token)
			},
			Forget: func(ctx context.Context, r string) error {
				tx, err := db.BeginTx(ctx, nil)
				if err != nil {
					return err
				}
				_, err = tx.ExecContext(ctx, g.Statements().Forget, []byte(r))
				return errors.Join(err, tx.Commit())
			},
			Read: func(ctx context.Context, r string) (value string, err error) {
				err = db.QueryRowContext(ctx, "SELECT value FROM "+values+" WHERE name = "+s.number(1),
					r).Scan(&value)
				if errors.Is(err, sql.ErrNoRows) {
					err = nil
				}
				return value, err
			},
			Mark: func(ctx context.Context, r string) (fencing.Token, error) { return markOf(ctx, g, db, r) },
		}
	}
	strict := s.dsn(s.addr, password) + s.strict
	guardtest.Run(t, func(t *testing.T) guardtest.Store { return store(t, strict) })
	if s.server == nil {
		return
	}
	guardtest.Faults(t, func(t *testing.T) guardtest.Proxied {
		s.exec(t, first, "DELETE FROM "+values)
		s.exec(t, first, "DELETE FROM "+marks)
		p := lab.StartProxy(t, s.addr)
		through, direct := store(t, s.dsn(p.Addr(), password)+s.hasty), store(t, s.dsn(s.addr, password))
		through.Read = direct.Read
		return guardtest.Proxied{Store: through, Proxy: p, Later: direct.Write, Commit: s.commit, Locks: true}
	})
}

// A transaction that was refused cannot be committed, whatever its owner does with the error.
func testRefused(t *testing.T, s *store) {
	db := s.open(t)
	g, _ := s.guard(t, db)
	st := s.state(t, db)
	require.NoError(t, s.check(t, g, db, "r", 10))
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for name, r := range map[string]struct {
		ctx      context.Context
		resource string
		token    fencing.Token
		want     error
	}{
		"stale":     {t.Context(), "r", 9, fencing.ErrStale},
		"missing":   {t.Context(), "r", 0, fencing.ErrMissing},
		"too large": {t.Context(), "r", math.MaxInt64 + 1, locker.ErrInvalid},
		"no name":   {t.Context(), "", 11, locker.ErrInvalid},
		"cancelled": {over, "r", 11, context.Canceled},
	} {
		tx, err := db.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		require.NoError(t, st.write(t.Context(), tx, 9))
		err = g.Check(r.ctx, tx, r.resource, r.token)
		require.ErrorIs(t, err, r.want, name)
		assert.NotContains(t, err.Error(), "\n")
		require.ErrorIs(t, tx.Commit(), sql.ErrTxDone)
		assert.Empty(t, st.history(t), "the write before the refusal is undone")
		assert.EqualValues(t, 10, mark(t, g, db, "r"))
		require.ErrorIs(t, g.Do(r.ctx, db, nil, r.resource, r.token, func(context.Context, *sql.Tx) error {
			assert.Fail(t, "called")
			return nil
		}), r.want)
	}
	require.ErrorContains(t, s.check(t, g, db, "r", math.MaxInt64+1),
		"9223372036854775808 is more than a signed 64-bit column can hold, which is 9223372036854775807")
	require.NoError(t, s.check(t, g, db, "r", 11), "the refusals have left nothing locked")
}

// The mark moves with the write or not at all.
func testTogether(t *testing.T, s *store) {
	db := s.open(t)
	g, _ := s.guard(t, db)
	st := s.state(t, db)
	own := errors.New("changed my mind")
	do := func(token fencing.Token, after func(ctx context.Context, tx *sql.Tx) error) error {
		return g.Do(t.Context(), db, nil, "r", token, func(ctx context.Context, tx *sql.Tx) error {
			return errors.Join(st.write(ctx, tx, token), after(ctx, tx))
		})
	}
	for _, before := range []string{"", "5 "} { // the first mark, and one that was there
		if before != "" {
			require.NoError(t, do(5, nothing), "a higher one was never committed")
		}
		tx, err := db.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		require.NoError(t, g.Check(t.Context(), tx, "r", 7))
		require.NoError(t, st.write(t.Context(), tx, 7))
		require.NoError(t, tx.Rollback())
		require.ErrorIs(t, do(7, func(context.Context, *sql.Tx) error { return own }), own)
		assert.PanicsWithValue(t, "on purpose", func() {
			_ = do(7, func(context.Context, *sql.Tx) error { panic("on purpose") })
		})
		require.ErrorIs(t, do(7, func(ctx context.Context, tx *sql.Tx) error {
			_ = g.Check(ctx, tx, "r2", 0) // refused, and nobody looks
			return nil
		}), sql.ErrTxDone)
		assert.Equal(t, before, st.history(t))
		assert.Equal(t, before != "", mark(t, g, db, "r") == 5)
	}
	// One transaction may check more than once, and more than one.
	require.NoError(t, do(8, func(ctx context.Context, tx *sql.Tx) error {
		return errors.Join(g.Check(ctx, tx, "r", 8), g.Check(ctx, tx, "r2", 3))
	}))
	assert.EqualValues(t, 8, mark(t, g, db, "r"))
	assert.EqualValues(t, 3, mark(t, g, db, "r2"))
}

// eachLevel runs test at each isolation level, with and without a mark in place.
func eachLevel(t *testing.T, s *store, test func(t *testing.T, opts *sql.TxOptions, g *sqlguard.Guard,
	db *sql.DB)) {
	db := s.open(t)
	for _, level := range s.levels {
		for _, there := range []bool{false, true} {
			t.Run(fmt.Sprintf("%v/mark=%t", level, there), func(t *testing.T) {
				g, _ := s.guard(t, db)
				if there {
					require.NoError(t, s.check(t, g, db, "r", 1))
				}
				test(t, &sql.TxOptions{Isolation: level}, g, db)
			})
		}
	}
}

const lo, hi = fencing.Token(5), fencing.Token(7)

// Two holders, in every order in which the one can come to the other.
func testOrders(t *testing.T, s *store) {
	// behind lets one holder check and, while another who asks for the same
	// waits for it, write and end its transaction.
	behind := func(t *testing.T, opts *sql.TxOptions, g *sqlguard.Guard, db *sql.DB, first,
		second fencing.Token, end func(*sql.Tx) error) (*state, error) {
		st := s.state(t, db)
		tx, err := db.BeginTx(t.Context(), opts)
		require.NoError(t, err)
		defer func() { _ = tx.Rollback() }()
		require.NoError(t, g.Check(t.Context(), tx, "r", first))
		done := make(chan error, 1)
		go func() {
			done <- s.insist(func() error {
				return g.Do(t.Context(), db, opts, "r", second,
					func(ctx context.Context, tx *sql.Tx) error { return st.write(ctx, tx, second) })
			})
		}()
		if s.blocked != "" {
			s.untilBlocked(t, db)
		}
		select {
		case err := <-done:
			t.Errorf("it did not wait: %v", err)
		default:
		}
		require.NoError(t, st.write(t.Context(), tx, first))
		require.NoError(t, end(tx))
		return st, <-done
	}
	for name, c := range map[string]struct {
		first, second fencing.Token
		end           func(*sql.Tx) error
		want          error
		history       string
		mark          fencing.Token
	}{
		"low, then high":            {lo, hi, (*sql.Tx).Commit, nil, "5 7 ", hi}, // having read the first
		"high, then low":            {hi, lo, (*sql.Tx).Commit, fencing.ErrStale, "7 ", hi},
		"high rolls back, then low": {hi, lo, (*sql.Tx).Rollback, nil, "5 ", lo},
	} {
		t.Run(name, func(t *testing.T) {
			eachLevel(t, s, func(t *testing.T, opts *sql.TxOptions, g *sqlguard.Guard, db *sql.DB) {
				st, err := behind(t, opts, g, db, c.first, c.second, c.end)
				require.ErrorIs(t, err, c.want)
				assert.Equal(t, c.history, st.history(t))
				assert.Equal(t, c.mark, mark(t, g, db, "r"))
			})
		})
	}
	if s.locks {
		return // nobody can write while another has read
	}
	// The low one's transaction shows it the time before the high one.
	t.Run("high, then low in an older snapshot", func(t *testing.T) {
		eachLevel(t, s, func(t *testing.T, opts *sql.TxOptions, g *sqlguard.Guard, db *sql.DB) {
			st := s.state(t, db)
			tx, err := db.BeginTx(t.Context(), opts)
			require.NoError(t, err)
			_, err = st.read(t.Context(), tx, 2)
			require.NoError(t, err)
			require.NoError(t, s.insist(func() error {
				return g.Do(t.Context(), db, opts, "r", hi,
					func(ctx context.Context, tx *sql.Tx) error { return st.write(ctx, tx, hi) })
			}))
			err = g.Check(t.Context(), tx, "r", lo)
			if !errors.Is(err, fencing.ErrStale) {
				require.True(t, s.again(err), "neither refused nor told to do it again: %v", err)
			}
			if s.dialect == sqlguard.Postgres && opts.Isolation >= sql.LevelRepeatableRead {
				require.True(t, s.again(err), "a serialisation failure can be recognised: %v", err)
			}
			require.ErrorIs(t, tx.Commit(), sql.ErrTxDone)
			require.ErrorIs(t, s.check(t, g, db, "r", lo), fencing.ErrStale)
			assert.Equal(t, "7 ", st.history(t))
		})
	})
}

// untilBlocked waits until somebody waits for a lock.
func (s *store) untilBlocked(t *testing.T, db *sql.DB) {
	t.Helper()
	require.Eventually(t, func() bool {
		var n int
		require.NoError(t, db.QueryRowContext(t.Context(), s.blocked).Scan(&n))
		return n > 0
	}, 20*time.Second, 5*time.Millisecond)
}
