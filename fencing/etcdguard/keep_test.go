package etcdguard_test

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/golockers/locker/fencing"
	"github.com/golockers/locker/fencing/etcdguard"
)

func (s scene) leases(t testing.TB) []clientv3.LeaseStatus {
	t.Helper()
	resp, err := s.admin.Leases(within(t, soon))
	require.NoError(t, err)
	return resp.Leases
}

func TestMarksGoWhenTheyWereNotUsedForLong(t *testing.T) {
	s := newScene(t, 1)
	const keep = 2 * time.Second
	g := newGuard(t, s.admin, &etcdguard.Options{Keep: keep})
	ctx := within(t, time.Minute)
	commit := func(resource string, token fencing.Token) {
		_, err := g.Commit(ctx, resource, token, clientv3.OpPut("data", token.String()))
		require.NoError(t, err)
	}
	commit("used", 5)
	commit("idle", 5)
	began := time.Now()
	var lastUse time.Time
	gone := func() bool {
		m, err := g.Mark(ctx, "idle")
		require.NoError(t, err)
		return m == 0
	}
	for !gone() {
		lastUse = time.Now()
		commit("used", 5) // an equal token is a use, too
		require.Less(t, time.Since(began), soon, "the mark stays")
		time.Sleep(keep / 20)
	}
	assert.Greater(t, time.Since(began), keep, "it went too early")
	_, err := g.Commit(ctx, "used", 4)
	require.ErrorIs(t, err, fencing.ErrStale, "the one that was in use is still there")
	commit("idle", 4)
	// What was written with a mark does not go with it.
	require.Eventually(t, func() bool {
		m, err := g.Mark(ctx, "used")
		return err == nil && m == 0
	}, soon, keep/20)
	assert.Greater(t, time.Since(lastUse), keep, "it went too early")
	assert.Equal(t, "4", s.value(t, "data"))
}

func TestMarksShareOneLease(t *testing.T) {
	s := newScene(t, 1)
	g := newGuard(t, s.admin, &etcdguard.Options{Keep: time.Hour})
	var wg sync.WaitGroup
	for _, resource := range []string{"a", "b", "c", "a"} {
		wg.Go(func() {
			_, err := g.Commit(within(t, soon), resource, 1)
			assert.NoError(t, err)
		})
	}
	wg.Wait()
	leases := s.leases(t)
	require.Len(t, leases, 1)
	ttl, err := s.admin.TimeToLive(within(t, soon), leases[0].ID)
	require.NoError(t, err)
	assert.InDelta(t, 2*time.Hour.Seconds(), float64(ttl.GrantedTTL), 2)

	_, err = s.guard.Commit(within(t, soon), "for ever", 1)
	require.NoError(t, err)
	kv, err := s.admin.Get(within(t, soon), "fencing/1/mark/for ever")
	require.NoError(t, err)
	assert.Zero(t, kv.Kvs[0].Lease)
}

// A guard that went on with a lease that is gone would refuse everything.
func TestMarksGetANewLeaseWhenTheirsWasRevoked(t *testing.T) {
	s := newScene(t, 1)
	ctx := within(t, soon)
	g := newGuard(t, s.admin, &etcdguard.Options{Keep: time.Hour})
	_, err := g.Commit(ctx, "r", 5)
	require.NoError(t, err)
	first := s.leases(t)[0].ID
	_, err = s.admin.Revoke(ctx, first)
	require.NoError(t, err)
	_, err = g.Commit(ctx, "r", 6, clientv3.OpPut("data", "x"))
	require.NoError(t, err)
	require.Len(t, s.leases(t), 1)
	second := s.leases(t)[0].ID
	assert.NotEqual(t, first, second)

	// A lease of the caller's that is gone is the caller's business.
	before := s.revision(t)
	for range 3 {
		_, err = g.Commit(ctx, "r", 7, clientv3.OpPut("data", "y", clientv3.WithLease(first)))
		require.ErrorIs(t, err, rpctypes.ErrLeaseNotFound)
		require.NotErrorIs(t, err, fencing.ErrUnknown)
	}
	assert.Len(t, s.leases(t), 1, "no lease was granted for nothing")
	assert.Equal(t, before, s.revision(t))
}
