package etcd_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/etcd"
	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/internal/locktest"
)

// Close deletes the floor of a holder that it has notified, and only if it knows that the place is gone: a
// revocation that is not answered may not have been carried out.
func TestCloseDeletesTheFloorsOfSessionsThatAreGone(t *testing.T) {
	s := parallelScene(t, 1)
	answered, not := backendWith(t, strict, s.Addrs()), backendWith(t, strict, s.Addrs(), silent("LeaseRevoke"))
	locktest.Acquire(t, answered, request("answered", 20*time.Second, false))
	locktest.Acquire(t, not, request("not", 20*time.Second, false))
	require.Len(t, all(t, s.admin), 4)
	require.NoError(t, answered.Close())
	require.NoError(t, not.Close())
	assert.Empty(t, locksIn(t, s.admin, "answered"))
	assert.Len(t, locksIn(t, s.admin, "not"), 2, "the place and the floor")
}

// After Close, what is undone is known only if etcd has confirmed that the session is gone, or it is known
// that nothing was left. The engine waits 1.5 seconds for a Close.
func TestUndoAfterClose(t *testing.T) {
	s := parallelScene(t, 1)
	for mode, opts := range map[lab.Mode]etcd.Options{lab.Pass: {}, lab.Drop: strict} {
		network := lab.StartProxy(t)
		b := backendWith(t, opts, s.Addrs(), through(network))
		name := fmt.Sprint("n", mode)
		held := locktest.Acquire(t, b, request(name, time.Minute, false))
		undone := locktest.Acquire(t, b, request("other", time.Minute, false))
		require.NoError(t, undone.Hold.Undo(t.Context()))
		network.Set(mode)
		began := time.Now()
		require.NoError(t, b.Close())
		assert.Less(t, time.Since(began), 1800*time.Millisecond)
		require.NoError(t, undone.Hold.Undo(t.Context()))
		if mode == lab.Pass {
			require.NoError(t, held.Hold.Undo(t.Context()))
			require.Empty(t, locksIn(t, s.admin, name))
		} else {
			require.ErrorIs(t, held.Hold.Undo(t.Context()), driver.ErrClosed)
			require.Len(t, locksIn(t, s.admin, name), 2)
		}
	}
}
