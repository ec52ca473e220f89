//go:build unix

package sqltest_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/fencing"
	"github.com/golockers/locker/fencing/sqlguard"
)

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
		history       []fencing.Token
	}{
		"low, then high":            {lo, hi, (*sql.Tx).Commit, nil, []fencing.Token{lo, hi}}, // having read the first
		"high, then low":            {hi, lo, (*sql.Tx).Commit, fencing.ErrStale, []fencing.Token{hi}},
		"high rolls back, then low": {hi, lo, (*sql.Tx).Rollback, nil, []fencing.Token{lo}},
	} {
		t.Run(name, func(t *testing.T) {
			eachLevel(t, s, func(t *testing.T, opts *sql.TxOptions, g *sqlguard.Guard, db *sql.DB) {
				st, err := behind(t, opts, g, db, c.first, c.second, c.end)
				require.ErrorIs(t, err, c.want)
				assert.Equal(t, c.history, st.history(t))
				assert.Equal(t, c.history[len(c.history)-1], mark(t, g, db, "r"))
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
			require.NoError(t, st.snapshot(t.Context(), tx))
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
			assert.Equal(t, []fencing.Token{hi}, st.history(t))
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
