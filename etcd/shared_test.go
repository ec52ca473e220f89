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

// As many as may be share a name, with a floor each, and one more is told so. A writer gets in behind them.
func TestProveAsManySharersAsMayBe(t *testing.T) {
	lab.NeedProve(t)
	s := newScene(t, 1)
	ctx := t.Context()
	b := backendWith(t, s.Addrs(), &etcd.Options{StrictExpiry: true, MaxTTL: time.Minute})
	locktest.MaxSharers(t, b, func() {
		in := make(chan driver.Grant, 1)
		go func() {
			grant, err := backend(t, s.Addrs()).Acquire(ctx, request("n", time.Minute, true))
			assert.NoError(t, err)
			in <- grant
		}()
		s.queued(t, "n", 2*driver.MaxSharers+1)
		st, err := locktest.Break(ctx, b, "n")
		require.NoError(t, err)
		assert.Equal(t, driver.MaxSharers, st.Sharers)
		require.NoError(t, (<-in).Hold.Release(ctx, 0))
		s.queued(t, "n", 0)
	})
}

// Sharers who get in together, more than may read a queue at one time, and all find that dead ones have left
// something.
func TestManySharersWhoFindDeadOnes(t *testing.T) {
	const many = 40
	s := parallelScene(t, 1)
	ctx := within(t, 2*time.Minute)
	b := backendWith(t, s.Addrs(), &etcd.Options{Timeout: 30 * time.Second})
	writer := locktest.Acquire(t, b, request("n", time.Minute, false))
	granted := make(chan error, many)
	for range many {
		go func() {
			req := request("n", time.Minute, true)
			req.Shared = true
			_, err := locktest.Ask(ctx, b, req)
			granted <- err
		}()
	}
	s.queued(t, "n", many+1)
	for i := range many + 1 {
		_, err := s.admin.Put(ctx, fmt.Sprintf("%s!sDEAD.%d", queue("n"), i), fmt.Sprintf("%040d/1/1:", i))
		require.NoError(t, err)
	}
	require.NoError(t, writer.Hold.Release(ctx, 0))
	for range many {
		require.NoError(t, <-granted)
	}
}
