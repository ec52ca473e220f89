package locktest

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/driver"
)

// MaxSharers has as many share a name of b as may be, who renew and leave: one more is refused and has left nothing,
// and they keep out who wants it alone. meanwhile, if it is not nil, is called while they all hold, and may break them.
func MaxSharers(t testing.TB, b driver.Backend, meanwhile func()) {
	t.Helper()
	request := func(i int) driver.Request {
		return driver.Request{Name: "n", Owner: fmt.Sprintf("%040x", i), TTL: time.Hour, Shared: true,
			Queued: func() {}, Lost: func() {}}
	}
	grants := make([]driver.Grant, locker.MaxSharers)
	each := func(what string, do func(i int) error) {
		began := time.Now()
		const callers = 16
		var all sync.WaitGroup
		for first := range callers {
			all.Go(func() {
				for i := first; i < len(grants); i += callers {
					err := do(i)
					for tries := 0; errors.Is(err, locker.ErrUnavailable) && tries < 5; tries++ { // a machine that is busy
						err = do(i)
					}
					assert.NoError(t, err)
				}
			})
		}
		all.Wait()
		t.Logf("%d sharers %s in %v", len(grants), what, time.Since(began))
	}
	each("came", func(i int) (err error) {
		req := request(i)
		req.Wait = i%2 == 0
		grants[i], err = b.Acquire(t.Context(), req)
		return err
	})
	for _, g := range grants {
		require.Equal(t, grants[0].Token, g.Token)
	}
	for _, wait := range []bool{false, true} {
		req := request(len(grants))
		req.Wait = wait
		g, err := b.Acquire(t.Context(), req)
		require.ErrorIs(t, err, locker.ErrRefused)
		require.ErrorContains(t, err, "4096 share")
		require.Nil(t, g.Hold, "it has left nothing")
	}
	each("renewed", func(i int) error { _, err := grants[i].Hold.Renew(t.Context()); return err })
	alone := request(len(grants) + 1)
	alone.Shared = false
	_, err := Ask(t.Context(), b, alone)
	require.ErrorIs(t, err, locker.ErrHeld)
	inspect := func() locker.State {
		st, err := b.(driver.Operator).Inspect(t.Context(), "n")
		require.NoError(t, err)
		return st
	}
	Eventually(t, 30*time.Second, "all are counted", func() bool { // /proc/locks is read while others change it
		return inspect().Sharers == len(grants)
	})
	if meanwhile != nil {
		meanwhile()
	}
	if inspect().Held {
		each("left", func(i int) error { return grants[i].Hold.Release(t.Context(), 0) })
	}
	g, err := b.Acquire(t.Context(), alone)
	require.NoError(t, err)
	require.NoError(t, g.Hold.Release(t.Context(), 0))
}
