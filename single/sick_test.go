package single_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/internal/locktest"
	"github.com/golockers/locker/internal/redisnode"
	"github.com/golockers/locker/single"
)

// Connections that go silent for a while, and stay so, cost no lease whose TTL is
// four times as long; and a lock can be had soon after (R22).
func TestSilentConnections(t *testing.T) {
	server := lab.StartRedis(t)
	for _, silence := range []time.Duration{100 * time.Millisecond, 300 * time.Millisecond, time.Second} {
		for _, given := range []bool{false, true} {
			t.Run(fmt.Sprintf("%v, given=%v", silence, given), func(t *testing.T) {
				t.Parallel()
				other, silence := client(t, server.Addr(), nil), silence
				lab.Again(t, func() bool { // a machine that stalls loses leases, too
					slowest := slowestOf(t, other)
					lost, wait := silent(t, server, silence, given)
					stall := slowest()
					t.Logf("silent for %v: granted %v after the network was back, %d leases lost, the machine is %v late",
						silence, wait, lost, stall)
					if stall > 20*time.Millisecond { // such a machine may need more time
						defer func() { silence = min(2*silence, time.Second) }()
					}
					return lost == 0 && wait < min(300*time.Millisecond+8*stall, 2*time.Second)
				})
			})
		}
	}
}

// slowestOf has a client lock and unlock again and again, whose connections are well, and returns how much too long that
// has taken at most.
func slowestOf(t *testing.T, c *locker.Client) (slowest func() time.Duration) {
	const pause = 10 * time.Millisecond
	over, most := make(chan struct{}), make(chan time.Duration)
	go func() {
		var slowest time.Duration
		for {
			began := time.Now()
			time.Sleep(pause)
			l, err := c.Lock(context.Background(), rand.Text())
			if assert.NoError(t, err) {
				assert.NoError(t, l.Unlock(context.Background()))
			}
			slowest = max(slowest, time.Since(began)-pause)
			select {
			case <-over:
				most <- slowest
				return
			default:
			}
		}
	}()
	slowest = sync.OnceValue(func() time.Duration {
		close(over)
		return <-most
	})
	t.Cleanup(func() { slowest() })
	return slowest
}

// silent returns how many leases a silence has cost, and when the first lock was granted after it.
func silent(t *testing.T, server *lab.Redis, silence time.Duration, given bool) (lost int,
	wait time.Duration) {
	proxy := lab.StartProxy(t, server.Addr())
	opts := &locker.Options{TTL: 4 * silence, OutageTimeout: time.Minute} // a machine may stall, too
	var c *locker.Client
	if given {
		b, err := single.New(newClient(t, &redis.Options{Addr: proxy.Addr()}), nil)
		require.NoError(t, err)
		defer func() { _ = b.Close() }()
		c = locktest.Must(locker.New(b, opts))
	} else {
		var err error
		c, err = locker.Open(t.Context(), "redis://"+proxy.Addr(), opts, openers)
		require.NoError(t, err)
	}
	defer func() { _ = c.Close() }()
	return locktest.Silence(t, c, opts.TTL, silence, func() { proxy.Set(lab.Drop) }, proxy.PassNew)
}

// A server that stalls for a moment answers later: that is told as a success.
func TestAServerThatStallsIsWaitedFor(t *testing.T) {
	lab.NeedPause(t)
	server := lab.StartRedis(t)
	c := client(t, server.Addr(), nil)
	for range 20 { // so that callers alone go to the driver themselves
		l := locktest.Lock(t, c, "warm")
		require.NoError(t, l.Unlock(t.Context()))
	}
	stall := func() {
		server.Pause()
		time.AfterFunc(250*time.Millisecond, server.Resume)
	}
	stall()
	l, err := c.TryLock(t.Context(), "job")
	require.NoError(t, err)
	stall()
	require.NoError(t, l.Unlock(t.Context()))
	assert.Equal(t, int64(0), server.MustDo(t, "EXISTS", redisnode.LockKey("job")))
}

// Every error matches one of the library's or the context's, whichever of two
// time limits comes first.
func TestErrorsAreClassifiedByCause(t *testing.T) {
	lab.NeedPause(t)
	server := lab.StartRedis(t)
	c := client(t, server.Addr(), &single.Options{Timeout: 60 * time.Millisecond})
	for i := range 20 {
		l, err := c.Lock(t.Context(), fmt.Sprint("n", i))
		if err != nil {
			continue // the machine is busy
		}
		server.Pause()
		ctx, cancel := context.WithTimeout(t.Context(), 55*time.Millisecond+time.Duration(i)*time.Millisecond/2)
		err = l.Unlock(ctx)
		cancel()
		server.Resume()
		if err != nil {
			assert.True(t, errors.Is(err, driver.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded), err)
		}
	}
}

// A Cluster moves the keys of a slot one after the other: a sharer that renews in between has lost nothing.
func TestSharerRenewsWhileItsSlotMoves(t *testing.T) {
	t.Parallel()
	c := lab.StartCluster(t)
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs()})
	t.Cleanup(func() { _ = client.Close() })
	g, err := backend(t, client, nil).Acquire(t.Context(), driver.Request{Name: "n", Owner: rand.Text(),
		TTL: time.Minute, Shared: true})
	require.NoError(t, err)
	key := redisnode.LockKey("n")
	slot := c.Nodes[0].MustDo(t, "CLUSTER", "KEYSLOT", key)
	i := slices.IndexFunc(c.Nodes, func(n *lab.Redis) bool {
		_, err := n.Do("EXISTS", key)
		return err == nil
	})
	from, to := c.Nodes[i], c.Nodes[(i+1)%len(c.Nodes)]
	id := to.MustDo(t, "CLUSTER", "MYID")
	to.MustDo(t, "CLUSTER", "SETSLOT", slot, "IMPORTING", from.MustDo(t, "CLUSTER", "MYID"))
	from.MustDo(t, "CLUSTER", "SETSLOT", slot, "MIGRATING", id)
	host, port, err := net.SplitHostPort(to.Addr())
	require.NoError(t, err)
	for _, key := range []string{key, key + ":shared"} {
		from.MustDo(t, "MIGRATE", host, port, key, 0, 30_000)
		_, err := g.Hold.Renew(t.Context())
		require.NotErrorIs(t, err, driver.ErrLost, "%s has moved", key)
	}
	to.MustDo(t, "CLUSTER", "SETSLOT", slot, "NODE", id) // and the others learn of it
	require.Eventually(t, func() bool {
		_, err := g.Hold.Renew(t.Context())
		require.NotErrorIs(t, err, driver.ErrLost)
		return err == nil
	}, 30*time.Second, 20*time.Millisecond)
}
