package zookeeper

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/driver"
	lasting "github.com/golockers/locker/internal/session"
)

// A server whose Dial does not heed its context fails by its own limit, although another one answers all the time, and
// does not take up the session: the caller is told that no server can be used.
func TestDialThatHeedsNoContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const deaf, near = "192.0.2.1:1", "192.0.2.9:1"
		end := make(chan struct{})
		var hanging, most atomic.Int32
		b, err := New([]string{deaf, near}, &Options{Dial: func(_ context.Context, addr string) (net.Conn, error) {
			if addr == deaf {
				most.Store(max(most.Load(), hanging.Add(1)))
				<-end
				hanging.Add(-1)
				return (*tls.Conn)(nil), errors.New("at last") // as tls.Dial does
			}
			c, server := net.Pipe()
			return c, server.Close()
		}})
		require.NoError(t, err)
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err = b.Inspect(ctx, "a")
		require.ErrorIs(t, err, driver.ErrUnavailable)
		assert.ErrorContains(t, err, deaf+": no connection after 1s")
		assert.Less(t, time.Since(began), 2*firstPatience)
		for range 20 {
			_, err = b.Inspect(ctx, "a")
			require.Error(t, err)
			time.Sleep(time.Minute)
		}
		assert.Greater(t, most.Load(), int32(maxHanging/2))
		assert.LessOrEqual(t, most.Load(), int32(maxHanging+1)) // the last one was begun before the one before was late
		close(end)
		synctest.Wait()
		assert.Zero(t, hanging.Load())
		require.NoError(t, b.Close())
		time.Sleep(2 * time.Second) // the driver's Close waits up to a second for an answer that does not come
	})
}

// A connection that waits for its turn while others hang is young when that comes: servers end those that have said
// nothing for 10 s. Those that nobody uses any more are closed.
func TestConnectionsThatWaitForTheirTurnAreYoung(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		servers := []string{"a", "b", "c"}
		var mu sync.Mutex
		var made []*timed
		s := &session{Session: lasting.New(time.Hour), changed: make(chan struct{}), servers: newServers(servers)}
		s.backend = &Backend{opts: Options{SessionTimeout: time.Minute, Dial: func(context.Context, string) (net.Conn, error) {
			time.Sleep(2 * time.Duration(len(servers)) * stagger) // so that all begin
			c := &timed{made: time.Now()}
			mu.Lock()
			defer mu.Unlock()
			made = append(made, c)
			return c, nil
		}}}
		for range servers {
			c, err := s.dial("", "", 0)
			require.NoError(t, err)
			used := c.(*link).Conn.(*timed)
			assert.Less(t, time.Since(used.made), 10*time.Second)
			assert.False(t, used.closed)
			used.used = true
			time.Sleep(9 * time.Second) // it does not answer the greeting
		}
		s.End(driver.ErrClosed)
		s.goroutines.Wait()
		for _, c := range made {
			assert.NotEqual(t, c.used, c.closed)
		}
	})
}

// timed is a connection that knows how old it is.
type timed struct {
	net.Conn
	made         time.Time
	used, closed bool
}

func (*timed) SetDeadline(time.Time) error { return nil }
func (c *timed) Close() error              { c.closed = true; return nil }
