package postgres_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/internal/lab"
)

// settles is how long waiters are not refused when the connection for wake-ups has proved to hear.
const settles = time.Second

// A thousand goroutines that wait cost one connection, and nothing is sent while nothing changes.
func TestProveWaitersCostOneConnectionAndNoQuery(t *testing.T) {
	lab.NeedProve(t)
	t.Parallel()
	s := lab.StartPostgres(t)
	holder, err := newClient(t, s.URL(s.Addr(), "sslmode=disable"), nil).Lock(t.Context(), "a",
		locker.TTL(time.Hour))
	require.NoError(t, err)
	p := lab.StartProxy(t, s.Addr())
	c := newClient(t, s.URL(p.Addr(), "sslmode=disable", "application_name=waiting",
		"pool_max_conn_idle_time=100ms", "pool_health_check_period=100ms"), nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	w := startWaiters(ctx, c, "a", 1000)
	<-w.Ready
	connections := func() string {
		return s.Query(t, "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'waiting'")
	}
	require.Eventually(t, func() bool { return connections() == "1" }, 30*time.Second, 10*time.Millisecond,
		"those of the pool, which are idle, go")
	sent := p.Stats().Requests.Sent
	time.Sleep(2 * time.Second) // what is measured is that nothing happens
	assert.Equal(t, sent, p.Stats().Requests.Sent)
	assert.Equal(t, "1", connections())
	require.NoError(t, holder.Unlock(t.Context()))
	select {
	case <-w.Got:
	case <-time.After(4 * time.Second): // the next poll comes later
		t.Error("nobody was told of the release")
	}
	cancel()
	w.Done.Wait()
}

// waiters wait for one name.
type waiters struct {
	Ready chan struct{} // closed when all of them wait and are told of a release
	Got   chan time.Time
	Done  sync.WaitGroup
}

// startWaiters has so many goroutines wait for name until ctx ends. They poll until they are told of
// releases: they are ready when they were refused twice, and not again for the time of settles.
func startWaiters(ctx context.Context, c *locker.Client, name string, goroutines int) *waiters {
	w := &waiters{Ready: make(chan struct{}), Got: make(chan time.Time, goroutines)}
	refused := c.Stats().Refused
	for range goroutines {
		w.Done.Go(func() {
			l, err := c.Lock(ctx, name)
			if err != nil {
				return
			}
			w.Got <- time.Now()
			<-ctx.Done()
			_ = l.Unlock(context.WithoutCancel(ctx))
		})
	}
	w.Done.Go(func() {
		last, since := refused, time.Now()
		for ; ctx.Err() == nil; time.Sleep(time.Millisecond) {
			now := c.Stats()
			if now.Waiting != goroutines || now.Refused < refused+2 || now.Refused != last {
				last, since = now.Refused, time.Now()
			} else if time.Since(since) > settles {
				close(w.Ready)
				return
			}
		}
	})
	return w
}
