package postgres_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/internal/locktest"
	"github.com/golockers/locker/internal/refusal"
	"github.com/golockers/locker/postgres"
)

func sharer(name string, i int) driver.Request {
	req := request(name, owner(i))
	req.Shared = true
	return req
}

// A transaction that called Held with a shared lease keeps writers out until it ends, whatever becomes of the
// lease, and nobody who shares the lock.
func TestHeldOfASharer(t *testing.T) {
	s, b, pool := server(t)
	other, _ := newBackend(t, s.URL(s.Addr(), "sslmode=disable"), nil)
	c := locker.New(b, nil)
	defer func() { require.NoError(t, c.Close()) }()
	l := locktest.Lock(t, c, "a", locker.Shared())
	g := locktest.Acquire(t, other, sharer("a", 1))
	tx, err := pool.Begin(t.Context())
	require.NoError(t, err)
	require.NoError(t, postgres.Held(t.Context(), tx, l))
	second, err := locktest.Ask(t.Context(), other, sharer("a", 2))
	require.NoError(t, err, "another joins")
	require.NoError(t, second.Hold.Release(t.Context()))
	require.NoError(t, g.Hold.Release(t.Context()))
	_, err = locktest.Break(t.Context(), other, "a")
	require.NoError(t, err)
	for _, req := range []driver.Request{request("a", owner(3)), sharer("a", 4)} {
		_, err = locktest.Ask(t.Context(), other, req)
		require.ErrorIs(t, err, driver.ErrHeld, "the transaction goes on (shared: %t)", req.Shared)
	}
	late, err := pool.Begin(t.Context())
	require.NoError(t, err)
	require.ErrorIs(t, postgres.Held(t.Context(), late, l), driver.ErrLost)
	require.NoError(t, tx.Commit(t.Context()))
	acquire(t, other, "a", owner(3))
}

// Those who come to a free name at the same moment have one token, and when they leave at the same moment,
// the name is free.
func TestSharersThatComeAndLeaveAtOnce(t *testing.T) {
	t.Parallel()
	s := lab.StartPostgres(t)
	var backends []*postgres.Backend
	for range 4 {
		b, _ := newBackend(t, s.URL(s.Addr(), "sslmode=disable"), nil)
		backends = append(backends, b)
	}
	for round := range 30 {
		var grants [8]driver.Grant
		each := func(do func(i int) error) {
			var all sync.WaitGroup
			for i := range grants {
				all.Go(func() { assert.NoError(t, do(i)) })
			}
			all.Wait()
		}
		each(func(i int) (err error) {
			grants[i], err = locktest.Ask(t.Context(), backends[i%4], sharer(fmt.Sprint(round%3), i))
			return err
		})
		for _, g := range grants {
			require.Equal(t, grants[0].Token, g.Token)
		}
		each(func(i int) error { return grants[i].Hold.Release(t.Context()) })
		require.NoError(t, acquire(t, backends[0], fmt.Sprint(round%3), owner(9)).Hold.Release(t.Context()))
	}
}

// Sharers who have left cost those who come after them nothing, also while others stay.
func TestSharersReadNoneThatHaveLeft(t *testing.T) {
	t.Parallel()
	const pairs = 400
	s := lab.StartPostgres(t)
	b, pool := newBackend(t, s.URL(s.Addr(), "sslmode=disable"), nil)
	locktest.Acquire(t, b, sharer("a", 0))
	for i := range pairs {
		g := locktest.Acquire(t, b, sharer("a", i+1))
		require.NoError(t, g.Hold.Release(t.Context()))
	}
	pool.Reset() // a connection that ends tells what it has read
	read := 0
	require.Eventually(t, func() bool {
		_, err := fmt.Sscan(s.Query(t, `SELECT idx_tup_read FROM pg_stat_user_indexes
			WHERE indexrelname = 'locker_locks_pkey'`), &read)
		return err == nil && read >= pairs
	}, 30*time.Second, 10*time.Millisecond)
	assert.Less(t, read/pairs, 40, "entries of the index that a pair has read")
	t.Logf("a pair has read %d entries of the index", read/pairs)
}

// What was held under a token that is not the row's any more is lost, though its entry is still there.
func TestSharersWhoseRowWasLost(t *testing.T) {
	s, b, _ := server(t)
	first := locktest.Acquire(t, b, sharer("a", 1))
	s.Exec(t, "DELETE FROM locker_locks WHERE name = 'a'")
	second := locktest.Acquire(t, b, sharer("a", 2))
	assert.Greater(t, second.Token, first.Token)
	_, err := first.Hold.Renew(t.Context())
	require.ErrorIs(t, err, driver.ErrLost)
	require.ErrorIs(t, first.Hold.Release(t.Context()), driver.ErrLost)
	_, err = locktest.Ask(t.Context(), b, request("a", owner(3)))
	require.ErrorIs(t, err, driver.ErrHeld)
	require.NoError(t, second.Hold.Release(t.Context()))
	acquire(t, b, "a", owner(3))
}

// The number of sharers is bounded. At the bound they come, are renewed and leave in time, and leave nothing.
func TestProveSharersAtTheBound(t *testing.T) {
	lab.NeedProve(t)
	s, b, _ := server(t)
	locktest.MaxSharers(t, b, func() {
		_, err := locktest.Ask(t.Context(), b, sharer("n", 7))
		require.NoError(t, err, "it is one of them")
	})
	assert.Equal(t, "1", s.Query(t, "SELECT count(*) FROM locker_locks WHERE name <> ''"))
}

// Entries of the dead and old notes go with the sweep, and are no locks before that.
func TestOldEntriesAreSwept(t *testing.T) {
	s, b, _ := server(t)
	locktest.Acquire(t, b, sharer("a", 1))
	waits := request("a", owner(2))
	waits.Wait = true
	_, err := locktest.Ask(t.Context(), b, waits)
	var held *refusal.Error
	require.ErrorAs(t, err, &held)
	require.NotNil(t, held.Leave)
	var names []string
	for st, err := range b.List(t.Context(), "") {
		require.NoError(t, err)
		names = append(names, st.Name)
	}
	assert.Equal(t, []string{"a"}, names)
	assert.Equal(t, "3", s.Query(t, "SELECT count(*) FROM locker_locks WHERE name <> ''"))
	s.Exec(t, "UPDATE locker_locks SET expires = clock_timestamp() - interval '1 hour'")
	require.NoError(t, postgres.Sweep(t.Context(), b))
	assert.Equal(t, "0", s.Query(t, "SELECT count(*) FROM locker_locks WHERE name <> ''"))
}

// Writers who wait for many names leave their notes together: one request each would take the pool's few
// connections from the renewals of the same client.
func TestNotesOfManyWritersShareRequests(t *testing.T) {
	const many = 300
	s := lab.StartPostgres(t)
	p := lab.StartProxy(t, s.Addr())
	b, pool := newBackend(t, s.URL(p.Addr(), "sslmode=disable", "pool_max_conns=4"), nil)
	var w sync.WaitGroup
	for i := range many {
		w.Go(func() {
			_, err := locktest.Ask(t.Context(), b, sharer(fmt.Sprint(i), i))
			assert.NoError(t, err)
		})
	}
	w.Wait()
	p.SetDelay(10 * time.Millisecond)
	before := pool.Stat().AcquireCount()
	for i := range many {
		w.Go(func() {
			req := request(fmt.Sprint(i), owner(many+i))
			req.Wait = true
			_, err := locktest.Ask(t.Context(), b, req)
			assert.ErrorIs(t, err, driver.ErrHeld)
		})
	}
	w.Wait()
	assert.Less(t, pool.Stat().AcquireCount()-before, int64(many/2))
}
