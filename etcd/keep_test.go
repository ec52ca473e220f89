package etcd_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/etcd"
	"github.com/golockers/locker/internal/locktest"
)

// keeping asks for a lock that is free, with a MinHold: again, if a slow machine has made etcd's answer take so long
// that it was given back.
func keeping(t *testing.T, b driver.Backend, req driver.Request) driver.Grant {
	t.Helper()
	for {
		g, err := locktest.Ask(within(t, 30*time.Second), b, req)
		if err == nil || !strings.Contains(err.Error(), "the answer took") {
			require.NoError(t, err)
			return g
		}
		require.NoError(t, g.Hold.Undo(t.Context()))
		req.Owner = request("", 0, false).Owner
	}
}

// What is kept is removed by all that removes a lock, and so is the lease of its MinHold. Etcd takes all that is sent
// for it, as it would not take a transaction that puts a key twice.
func TestKeptLockIsRemoved(t *testing.T) {
	s := parallelScene(t, 1)
	ctx := t.Context()
	for _, strict := range []bool{false, true} {
		b := backendWith(t, s.Addrs(), &etcd.Options{StrictExpiry: strict, MaxTTL: time.Minute})
		for how, remove := range map[string]func(driver.Hold) error{
			"Release": func(h driver.Hold) error { return h.Release(ctx, 0) },
			"Undo":    func(h driver.Hold) error { return h.Undo(ctx) },
			"Break": func(driver.Hold) error {
				_, err := locktest.Break(ctx, b, "n")
				return err
			},
		} {
			for i, shared := range []bool{false, true, false, true} {
				keep := []time.Duration{time.Minute, time.Minute, 2 * time.Hour, 2 * time.Hour}[i] // which needs a longer floor
				req := request("n", time.Minute, false)
				req.MinHold, req.Shared = time.Hour, shared
				g := keeping(t, b, req)
				st, err := b.Inspect(ctx, "n")
				require.NoError(t, err)
				assert.Greater(t, st.Remaining, req.MinHold-time.Minute, "it counts what keeps the lock beside the session")
				assert.Less(t, st.Remaining, req.MinHold+2*req.TTL)
				require.NoError(t, g.Hold.Release(ctx, keep))
				require.Len(t, all(t, s.admin), 1, how)
				st, err = b.Inspect(ctx, "n")
				require.NoError(t, err)
				assert.Greater(t, st.Remaining, max(keep, req.MinHold)-time.Minute, how)
				require.NoError(t, remove(g.Hold), how)
				require.Empty(t, all(t, s.admin), how)
				require.ErrorIs(t, g.Hold.Release(ctx, time.Minute), driver.ErrLost, how)
				require.Empty(t, all(t, s.admin), how)
				require.NoError(t, g.Hold.Undo(ctx), how)
				g = keeping(t, b, req)
				require.NoError(t, g.Hold.Undo(ctx), "it was not released before")
				require.Empty(t, all(t, s.admin), how)
			}
		}
	}
	leases, err := s.admin.Leases(ctx)
	require.NoError(t, err)
	assert.Len(t, leases.Leases, 2, "the sessions'")
}
