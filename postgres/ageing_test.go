package postgres_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/internal/lab"
)

// Server after server is lost to its standby, while holders hold and waiters wait: no two hold, and tokens
// rise in the order of the grants, also across names.
func TestAgeingFailovers(t *testing.T) {
	t.Parallel()
	lab.NeedProve(t)
	const names, clients, failovers = 2, 2, 3
	primary, standby := startPair(t)

	// The clients have one address, which leads to the server that has taken over.
	way := lab.StartProxy(t, primary.Addr())
	u := primary.URL(way.Addr(), "sslmode=disable", "failover_safe=on", "pool_max_conns=4")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	// guard is what the locks protect: it knows who is in.
	type guard struct {
		mu    sync.Mutex
		in    *locker.Lease
		last  uint64
		count int
	}
	var guards [names]guard
	var grants atomic.Int64
	var all sync.WaitGroup
	for i := range names * clients {
		c := newClient(t, u, &locker.Options{TTL: 4 * time.Second, Patience: time.Minute})
		name, g := fmt.Sprint("job", i%names), &guards[i%names]
		all.Go(func() {
			for ctx.Err() == nil {
				l, err := c.Lock(ctx, name)
				if err != nil {
					continue
				}
				token, _ := l.Token()
				g.mu.Lock()
				if other := g.in; other != nil && other.Err() == nil {
					t.Errorf("%s: two hold at once, with tokens %d and %d", name, g.last, token)
				}
				if token <= g.last {
					t.Errorf("%s: token %d after %d", name, token, g.last)
				}
				g.in, g.last = l, token
				g.count++
				g.mu.Unlock()
				grants.Add(1)
				select {
				case <-time.After(50 * time.Millisecond):
				case <-l.Done():
				}
				g.mu.Lock()
				if g.in == l {
					g.in = nil
				}
				g.mu.Unlock()
				_ = l.Unlock(context.WithoutCancel(ctx))
			}
		})
	}
	kept, err := newClient(t, u, &locker.Options{TTL: 30 * time.Second}).Lock(t.Context(), "kept")
	require.NoError(t, err)
	progress := func() {
		t.Helper()
		before := grants.Load()
		require.Eventually(t, func() bool { return grants.Load() > before+20 }, 30*time.Second,
			10*time.Millisecond)
	}
	for range failovers {
		progress()
		primary.Kill()
		standby.Promote(t)
		way.Retarget(standby.Addr())
		primary, standby = standby, lab.StartPostgres(t, lab.ReplicaOf(standby.Addr()))
		synchronous(t, primary)
		progress()
		require.NoError(t, kept.Err(), "a lock that is held survives")
		_, err = newClient(t, u, nil).TryLock(t.Context(), "kept")
		require.ErrorIs(t, err, locker.ErrHeld)
	}
	cancel()
	all.Wait()
	require.NoError(t, kept.Unlock(t.Context()))
	for i := range guards {
		t.Logf("job%d: %d grants, last token %d", i, guards[i].count, guards[i].last)
	}
}

// A table whose names come and go for longer than its rows live stays small, and its tokens rise, by
// whichever client; what is held and what was used lately stays.
func TestAgeingTable(t *testing.T) {
	t.Parallel()
	lab.NeedProve(t)
	s := lab.StartPostgres(t, lab.WithClock())
	u := s.URL(s.Addr(), "sslmode=disable")
	b, _ := newBackend(t, u, nil)
	held := acquire(t, b, "held", owner(0))
	last := held.Token
	const periods, perPeriod = 8, 200
	for period := range periods {
		var all sync.WaitGroup
		for i := range perPeriod {
			all.Go(func() {
				g, err := b.Acquire(t.Context(), request(fmt.Sprintf("p%d/%d", period, i),
					owner(1+period*perPeriod+i)))
				assert.NoError(t, err)
				assert.NoError(t, g.Hold.Release(t.Context()))
			})
		}
		all.Wait()
		s.Exec(t,
			"UPDATE locker_locks SET expires = clock_timestamp() + interval '1 hour' WHERE name = 'held'")
		s.JumpClock(t, 11*time.Minute)
		// A program that begins now sweeps.
		fresh, _ := newBackend(t, u, nil)
		g := acquire(t, fresh, "again", owner(1000000+period))
		require.Greater(t, g.Token, last)
		last = g.Token
		require.NoError(t, g.Hold.Release(t.Context()))
		require.Eventually(t, func() bool {
			return s.Query(t, "SELECT count(*) FROM locker_locks WHERE name LIKE 'p%'") == "0"
		}, 10*time.Second, 10*time.Millisecond)
	}
	_, err := held.Hold.Renew(t.Context())
	require.NoError(t, err)
	floor := s.Query(t, "SELECT token FROM locker_locks WHERE name = ''")
	assert.Equal(t, fmt.Sprint(1+periods*perPeriod+periods-1), floor, "the last token of a row that is gone")
	s.Exec(t, "VACUUM locker_locks")
	assert.NotContains(t, s.Query(t, "SELECT pg_size_pretty(pg_relation_size('locker_locks'))"), "MB")
}
