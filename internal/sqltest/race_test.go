//go:build unix

package sqltest_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
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
	t.Run("low, then high", func(t *testing.T) {
		eachLevel(t, s, func(t *testing.T, opts *sql.TxOptions, g *sqlguard.Guard, db *sql.DB) {
			st, err := behind(t, opts, g, db, lo, hi, (*sql.Tx).Commit)
			require.NoError(t, err)
			assert.Equal(t, []fencing.Token{lo, hi}, st.history(t),
				"the second has read what the first has written")
			assert.Equal(t, hi, mark(t, g, db, "r"))
		})
	})
	t.Run("high, then low", func(t *testing.T) {
		eachLevel(t, s, func(t *testing.T, opts *sql.TxOptions, g *sqlguard.Guard, db *sql.DB) {
			st, err := behind(t, opts, g, db, hi, lo, (*sql.Tx).Commit)
			require.ErrorIs(t, err, fencing.ErrStale)
			assert.Equal(t, []fencing.Token{hi}, st.history(t))
			assert.Equal(t, hi, mark(t, g, db, "r"))
		})
	})
	t.Run("high rolls back, then low", func(t *testing.T) {
		eachLevel(t, s, func(t *testing.T, opts *sql.TxOptions, g *sqlguard.Guard, db *sql.DB) {
			st, err := behind(t, opts, g, db, hi, lo, (*sql.Tx).Rollback)
			require.NoError(t, err)
			assert.Equal(t, []fencing.Token{lo}, st.history(t))
			assert.Equal(t, lo, mark(t, g, db, "r"))
		})
	})
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

// Holders who meet as they come: no write of a lower token follows one of a
// higher token, none is lost, and the highest always gets through.
func testRace(t *testing.T, s *store) {
	const rounds, writes = 8, 3
	tokens := []fencing.Token{3, 4, 5}
	eachLevel(t, s, func(t *testing.T, opts *sql.TxOptions, g *sqlguard.Guard, db *sql.DB) {
		for _, style := range []string{"check first", "read first"} {
			for round := range rounds {
				st := s.state(t, db)
				resource := fmt.Sprint(style, round)
				if mark(t, g, db, "r") != 0 {
					require.NoError(t, s.check(t, g, db, resource, 1))
				}
				write := func(ctx context.Context, token fencing.Token) error {
					if style == "check first" {
						return g.Do(ctx, db, opts, resource, token,
							func(ctx context.Context, tx *sql.Tx) error { return st.write(ctx, tx, token) })
					}
					return st.readFirst(ctx, g, opts, resource, token)
				}
				var committed atomic.Int64
				var wg sync.WaitGroup
				start := make(chan struct{})
				for _, token := range tokens {
					wg.Go(func() {
						<-start
						for range writes {
							err := s.insist(func() error { return write(t.Context(), token) })
							if errors.Is(err, fencing.ErrStale) {
								assert.Less(t, token, tokens[len(tokens)-1], "the highest is never stale")
								return
							}
							if !assert.NoError(t, err) {
								return
							}
							committed.Add(1)
						}
					})
				}
				close(start)
				wg.Wait()
				history := st.history(t)
				assert.Len(t, history, int(committed.Load()), "%v: each write is there once", history)
				assert.True(t, slices.IsSorted(history), "a lower token wrote after a higher one: %v",
					history)
				highest := tokens[len(tokens)-1]
				assert.Equal(t, highest, history[len(history)-1])
				assert.Equal(t, highest, mark(t, g, db, resource))
			}
		}
	})
}

// readFirst is a transaction that has a snapshot before it checks.
func (st *state) readFirst(ctx context.Context, g *sqlguard.Guard, opts *sql.TxOptions, resource string,
	token fencing.Token) error {
	tx, err := st.db.BeginTx(ctx, opts)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if err = st.snapshot(ctx, tx); err != nil {
		return err
	}
	if err = g.Check(ctx, tx, resource, token); err != nil {
		return err
	}
	if err = st.writeBlindly(ctx, tx, token); err != nil {
		return err
	}
	return tx.Commit()
}
