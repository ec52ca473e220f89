//go:build unix

package sqltest_test

import (
	"context"
	"database/sql"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/fencing"
	"github.com/golockers/locker/fencing/sqlguard"
	"github.com/golockers/locker/memory"
)

const callers = 16

// Whoever draws after another has drawn has the greater number.
func testCounter(t *testing.T, s *store) {
	const draws = 25
	run := func(t *testing.T, db *sql.DB) {
		db.SetMaxOpenConns(callers)
		db.SetMaxIdleConns(callers)
		c, name := s.counter(t, db)
		// A second one, of another process as it were.
		other, err := sqlguard.NewCounter(s.dialect, db, &sqlguard.Options{Table: name})
		require.NoError(t, err)
		var highest [2]atomic.Uint64
		var seen [2]sync.Map
		var wg sync.WaitGroup
		for i := range callers {
			c := []*sqlguard.Counter{c, other}[i/2%2]
			wg.Go(func() {
				of := i % 2
				for range draws {
					before := highest[of].Load()
					n, err := c.Next(t.Context(), fmt.Sprint("name", of))
					if !assert.NoError(t, err) || !assert.Greater(t, n, before, "it is not above one that was drawn before") {
						return
					}
					_, twice := seen[of].LoadOrStore(n, true)
					assert.False(t, twice, "%d was drawn twice", n)
					for h := highest[of].Load(); h < n && !highest[of].CompareAndSwap(h, n); h = highest[of].Load() {
					}
				}
			})
		}
		wg.Wait()
	}
	t.Run("default", func(t *testing.T) { run(t, s.open(t)) })
	if s.strict != nil {
		t.Run("serializable by default", func(t *testing.T) { run(t, s.openDSN(t, s.strict(s.dsn(s.addr, password)))) })
	}
	assert.Equal(t, locker.FencingUnlessRewind, new(sqlguard.Counter).Fencing())
}

// Numbers that were set back go on from the clock.
func testCounterRewound(t *testing.T, s *store) {
	db := s.open(t)
	c, name := s.counter(t, db)
	first, err := c.Next(t.Context(), "n")
	require.NoError(t, err)
	floor := uint64(time.Now().Add(-2*time.Second).Unix()) * 1e6
	assert.Greater(t, first, floor)
	for _, damage := range []string{"UPDATE " + name + " SET n = 5", "DELETE FROM " + name} {
		s.exec(t, db, damage)
		n, err := c.Next(t.Context(), "n")
		require.NoError(t, err)
		assert.Greater(t, n, floor, damage)
	}
	// A number ahead of the clock is counted on from.
	s.exec(t, db, "UPDATE "+name+" SET n = 9000000000000000000")
	n, err := c.Next(t.Context(), "n")
	require.NoError(t, err)
	assert.EqualValues(t, 9000000000000000001, n)
	// And the last one is an error, not a wrong number.
	s.exec(t, db, fmt.Sprintf("UPDATE %s SET n = %d", name, int64(math.MaxInt64)))
	for range 2 {
		n, err = c.Next(t.Context(), "n")
		require.Error(t, err)
		require.NotErrorIs(t, err, locker.ErrUnavailable)
		assert.Zero(t, n)
		var kept int64
		require.NoError(t, db.QueryRowContext(t.Context(), "SELECT n FROM "+name).Scan(&kept), "it is an integer still")
		assert.EqualValues(t, math.MaxInt64, kept)
	}
}

func testCounterSweep(t *testing.T, s *store) {
	db := s.open(t)
	c, name := s.counter(t, db)
	_, err := c.Sweep(t.Context(), time.Second)
	require.ErrorIs(t, err, locker.ErrInvalid)
	old, err := c.Next(t.Context(), "old")
	require.NoError(t, err)
	old -= uint64((3 * time.Hour).Microseconds())
	s.exec(t, db, fmt.Sprintf("UPDATE %s SET n = %d", name, old))
	_, err = c.Next(t.Context(), "young")
	require.NoError(t, err)
	removed, err := c.Sweep(t.Context(), 4*time.Hour)
	require.NoError(t, err)
	assert.Zero(t, removed)
	removed, err = c.Sweep(t.Context(), 2*time.Hour)
	require.NoError(t, err)
	assert.EqualValues(t, 1, removed)
	var left int
	require.NoError(t, db.QueryRowContext(t.Context(), "SELECT count(*) FROM "+name).Scan(&left))
	assert.Equal(t, 1, left)
	n, err := c.Next(t.Context(), "old")
	require.NoError(t, err)
	assert.Greater(t, n, old, "a counter that begins again is not behind")
}

func testCounterCancelled(t *testing.T, s *store) {
	db := s.open(t)
	c, _ := s.counter(t, db)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := c.Next(ctx, "n")
	require.ErrorIs(t, err, context.Canceled)
	require.NotErrorIs(t, err, locker.ErrUnavailable, "the caller has left: that says nothing of the database")
}

// The whole of it: locks without tokens of their own, tokens from the database,
// and writes that the database checks.
func testWrap(t *testing.T, s *store) {
	db := s.open(t)
	db.SetMaxIdleConns(callers)
	c, _ := s.counter(t, db)
	g, _ := s.guard(t, db)
	st := s.state(t, db)
	client := locker.New(fencing.Wrap(memory.New(), c), nil)
	defer func() { _ = client.Close() }()
	locks, err := fencing.Require(client)
	require.NoError(t, err)
	assert.Equal(t, locker.FencingUnlessRewind, locks.Guarantees().Fencing)

	const rounds = 3
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for range rounds {
				err := fencing.Do(t.Context(), locks, "r", func(ctx context.Context) error {
					token, err := fencing.FromContext(ctx)
					if err != nil {
						return err
					}
					return s.insist(func() error {
						return g.Do(ctx, db, nil, "r", token, func(ctx context.Context, tx *sql.Tx) error { return st.write(ctx, tx, token) })
					})
				})
				if !assert.NoError(t, err) {
					return
				}
			}
		})
	}
	wg.Wait()
	history := st.history(t)
	assert.Len(t, history, callers*rounds)
	assert.True(t, slices.IsSorted(history))
	assert.Len(t, slices.Compact(history), callers*rounds, "each holder has a token of its own")
}
