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
	"github.com/golockers/locker/internal/campaign"
	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/internal/locktest"
)

// Server after server is lost to its standby, while holders hold and waiters wait: no two hold, and tokens
// rise in the order of the grants, also across names.
func TestAgeingFailovers(t *testing.T) {
	t.Parallel()
	lab.NeedProve(t)
	primary, standby := startPair(t)

	// The clients have one address, which leads to the server that has taken over.
	way := lab.StartProxy(t, primary.Addr())
	u := primary.URL(way.Addr(), "sslmode=disable", "failover_safe=on", "pool_max_conns=4")
	var all []*locker.Client
	for range 4 {
		all = append(all, newClient(t, u, &locker.Options{TTL: 4 * time.Second, OutageTimeout: time.Minute}))
	}
	c := campaign.Begin(t, campaign.Names(2), false, 1, all...)
	kept := locktest.Lock(t, newClient(t, u, &locker.Options{TTL: 30 * time.Second}), "kept")
	for range 3 {
		c.GoesOn(20, 30*time.Second)
		primary.Kill()
		standby.Promote(t)
		way.Retarget(standby.Addr())
		primary, standby = standby, lab.StartPostgres(t, lab.ReplicaOf(standby.Addr()))
		synchronous(t, primary)
		c.GoesOn(20, 30*time.Second)
		require.NoError(t, kept.Err(), "a lock that is held survives")
		_, err := newClient(t, u, nil).TryLock(t.Context(), "kept")
		require.ErrorIs(t, err, driver.ErrHeld)
	}
	require.NoError(t, kept.Unlock(t.Context()))
	overlaps, _ := c.End(newClient(t, u, nil))
	assert.Empty(t, overlaps)
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
				g, err := locktest.Ask(t.Context(), b, request(fmt.Sprintf("p%d/%d", period, i),
					owner(1+period*perPeriod+i)))
				assert.NoError(t, err)
				assert.NoError(t, g.Hold.Release(t.Context(), 0))
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
		require.NoError(t, g.Hold.Release(t.Context(), 0))
		until(t, s, "0", "SELECT count(*) FROM locker_locks WHERE name LIKE 'p%'")
	}
	require.NoError(t, renew(t, held))
	s.Exec(t, "VACUUM locker_locks")
	assert.NotContains(t, s.Query(t, "SELECT pg_size_pretty(pg_relation_size('locker_locks'))"), "MB")
}
