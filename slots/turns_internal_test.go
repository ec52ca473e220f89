package slots

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/internal/locktest"
	"github.com/golockers/locker/internal/memlock"
)

// counting counts the requests of TryLock.
type counting struct {
	locker.Locker
	asked atomic.Int64
}

func (c *counting) TryLock(ctx context.Context, name string, opts ...locker.Option) (*locker.Lease, error) {
	c.asked.Add(1)
	return c.Locker.TryLock(ctx, name, opts...)
}

// incomparable is a Locker of a type that is no key of a map.
type incomparable struct {
	*counting
	_ []int
}

// Many calls that ask for names in turn ask together as often as one. The turns end with the calls.
func TestManyCallsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const calls, names, seconds = 200, 40, 10
		b := memlock.New(false)
		holder, c := locktest.Must(locker.New(b, nil)), &counting{Locker: locktest.Must(locker.New(b, nil))}
		var all []string
		for i := range names {
			all = append(all, fmt.Sprint(i))
			_, err := holder.Lock(t.Context(), all[i])
			require.NoError(t, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var done sync.WaitGroup
		for range calls {
			done.Go(func() { _, _ = LockAny(ctx, c, all) })
		}
		synctest.Wait()
		c.asked.Store(0)
		time.Sleep(seconds * time.Second)
		asked := c.asked.Load()
		assert.LessOrEqual(t, asked, int64(seconds*time.Second/turnTime)+1)
		assert.Greater(t, asked, int64(seconds*time.Second/turnTime)/2)
		cancel()
		done.Wait()
		synctest.Wait()
		assert.Empty(t, allTurns.of)

		ctx, cancel = context.WithTimeout(t.Context(), seconds*time.Second)
		defer cancel()
		_, err := LockAny(ctx, incomparable{counting: c}, all)
		require.ErrorIs(t, err, locker.ErrHeld)
		require.NoError(t, c.Locker.(*locker.Client).Close())
		require.NoError(t, holder.Close())
	})
}
