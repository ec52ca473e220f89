package single_test

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/internal/lab"
)

// Four clients with four callers each: everybody gets the lock, none much more often than another. Who comes too late
// for a turn, since the machine stalls, asks again: of three rounds the best one counts.
func TestBusyClientsShareALockEvenly(t *testing.T) {
	s := lab.StartRedis(t)
	const grants = 2000
	least := int64(math.MaxInt64)
	for round := 0; round < 3 && least >= 3*grants; round++ {
		asked := s.Commands(t)["evalsha"]
		var counts [4]atomic.Int64
		var total, inside atomic.Int64
		var all sync.WaitGroup
		for i := range counts {
			c := client(t, s.Addr(), nil)
			for range 4 {
				all.Go(func() {
					for total.Add(1) <= grants {
						l, err := c.Lock(context.Background(), "n")
						if !assert.NoError(t, err) {
							return
						}
						assert.EqualValues(t, 1, inside.Add(1), "two hold at once")
						inside.Add(-1)
						counts[i].Add(1)
						assert.NoError(t, l.Unlock(context.Background()))
					}
				})
			}
		}
		all.Wait()
		for i := range counts {
			assert.Greater(t, counts[i].Load(), int64(grants/len(counts)/4))
		}
		least = min(least, s.Commands(t)["evalsha"]-asked)
	}
	assert.Less(t, least, int64(3*grants), "most pairs are one request: without passing it is four")
}

// A client on another continent: a near one is busy all the time, and does not keep it out.
func TestAClientFarAwayGetsItsTurn(t *testing.T) {
	t.Parallel()
	s := lab.StartRedis(t)
	proxy := lab.StartProxy(t, s.Addr())
	proxy.SetDelay(70 * time.Millisecond)
	near, far := client(t, s.Addr(), nil), client(t, proxy.Addr(), nil)
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for ctx.Err() == nil {
				if l, err := near.Lock(ctx, "n"); err == nil {
					time.Sleep(time.Millisecond) // others wait in line by then
					assert.NoError(t, l.Unlock(context.Background()))
				}
			}
		})
	}
	defer all.Wait()
	defer cancel()
	patience, stop := context.WithTimeout(ctx, time.Minute) // without turns each takes 20 s, by luck
	defer stop()
	for range 8 {
		l, err := far.Lock(patience, "n")
		require.NoError(t, err)
		require.NoError(t, l.Unlock(context.Background()))
	}
}
