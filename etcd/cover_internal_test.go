package etcd

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/golockers/locker/driver"
)

// The store was full for the request that makes the lock's copies void, and not any more for what only deletes.
func TestReleaseThatIsKeptWhileItsAnswerIsThatTheStoreIsFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := calm(t, newServer(1, ""), "A", false)
		once, full := sync.Once{}, false
		c.onRequest(func(r *sent) (fate, error) {
			if r.in == releases && full {
				full = false
				return fate{carriedOut: true}, rpctypes.ErrNoSpace
			}
			f, err := r.send()
			if r.putsPlace() {
				once.Do(func() { f.underWay = true })
			}
			return f, err
		})
		h := c.ask(t, "o", time.Minute).Hold
		time.Sleep(5 * time.Second) // the floor is too short, and gets a longer one
		full = true
		require.ErrorIs(t, h.Release(t.Context(), time.Minute), driver.ErrUnavailable)
		assert.NoError(t, h.Release(t.Context(), time.Minute), "it is kept")
	})
}

// A release that is refused is made again for as long as its MinHold lasts, each time with a lease for its floor.
func TestReleasesThatAreRefusedLeaveNoLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(1, "")
		c := calm(t, s, "A", false)
		h := c.ask(t, "o", time.Minute).Hold
		time.Sleep(5 * time.Second)
		s.mu.Lock()
		before := len(s.leases)
		s.mu.Unlock()
		undo := c.onRequest(func(r *sent) (fate, error) {
			if r.in == releases {
				return fate{}, rpctypes.ErrPermissionDenied
			}
			return r.send()
		})
		for range 10 {
			require.Error(t, h.Release(t.Context(), time.Minute))
		}
		s.mu.Lock()
		assert.Len(t, s.leases, before)
		s.mu.Unlock()
		undo()
		require.NoError(t, h.Release(t.Context(), time.Minute))
	})
}
