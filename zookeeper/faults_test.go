package zookeeper_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/internal/locktest"
	"github.com/golockers/locker/zookeeper"
)

// connections is how many connections per host the server of TestOnALimitedServer allows.
const connections = 2

// occupy takes one of them. Those of the test before may still count: the driver is told "no server" then.
func occupy(t testing.TB, z *lab.ZooKeeper) (free func()) {
	t.Helper()
	c, done := dial(t, []string{z.Addr()})
	require.Eventually(t, func() bool { _, _, err := c.Exists("/"); return err == nil }, soon, 10*time.Millisecond)
	return done
}

// A server that has as many connections of this host as it allows hangs up on the
// next one. Open waits for that to pass, and says what it was if it does not.
func testLimitOfConnectionsPerHost(t *testing.T, z *lab.ZooKeeper) {
	url := "zookeeper://" + z.Addr() + "/locks?ttl=40s"
	var all []func()
	for range connections {
		all = append(all, occupy(t, z))
	}
	var err error
	for d, told := time.Second, false; !told; d *= 2 { // until the server has hung up in time
		began := time.Now()
		_, err = locker.Open(within(t, d), url, nil, zookeeper.Openers)
		require.ErrorIs(t, err, driver.ErrUnavailable)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Greater(t, time.Since(began), d*9/10, "it does not fail at the first sign")
		told = strings.Contains(err.Error(), "maxClientCnxns")
		require.True(t, told || d < soon, err)
	}

	timer := time.AfterFunc(300*time.Millisecond, all[0])
	t.Cleanup(func() {
		if timer.Stop() {
			all[0]()
		}
		all[1]()
	})
	c, err := locker.Open(within(t, soon), url, nil, zookeeper.Openers)
	require.NoError(t, err)
	require.NoError(t, c.Close())
}

// A server that has only local sessions refuses ephemeral nodes, with an error
// number for which the driver has no name.
func TestProveLocalSessionsAreRefusedAtOnce(t *testing.T) {
	lab.NeedProve(t)
	t.Parallel()
	e := lab.StartZooKeeperEnsemble(t, 3, lab.WithConfig("localSessionsEnabled", "true"))
	began := time.Now()
	// What passes, such as a server that has just started and is slow, is waited out.
	_, err := newClient(t, e.Addrs(), zookeeper.Options{}).Lock(within(t, soon), "a")
	require.Error(t, err)
	assert.NotErrorIs(t, err, driver.ErrUnavailable, "it does not pass")
	assert.NotErrorIs(t, err, driver.ErrHeld)
	assert.Contains(t, err.Error(), "localSessionsUpgradingEnabled")
	assert.Less(t, time.Since(began), soon/2)
}

// Servers that cannot be reached, or accept connections and say nothing, do not
// delay the connection to one that answers, and are remembered.
func testSilentServersBesideOneThatAnswers(t *testing.T, z *lab.ZooKeeper) {
	lock := func(servers []string, dial func(context.Context, string) (net.Conn, error)) time.Duration {
		b := newBackend(t, servers, zookeeper.Options{SessionTimeout: 30 * time.Second, Dial: dial})
		began := time.Now()
		g := acquire(t, b, asking("dialled", false))
		require.NoError(t, g.Hold.Release(within(t, soon), 0))
		return time.Since(began)
	}
	const near = "192.0.2.9:1" // hangs up at once, as one that has no quorum
	dial := func(ctx context.Context, addr string) (net.Conn, error) {
		switch addr {
		case near:
			c, server := net.Pipe()
			return c, server.Close()
		case z.Addr(): // is farther away
			time.Sleep(100 * time.Millisecond)
			return new(net.Dialer).DialContext(ctx, "tcp", addr)
		}
		<-ctx.Done()
		return nil, ctx.Err()
	}
	assert.Less(t, lock([]string{"192.0.2.1:1", "192.0.2.2:1", "192.0.2.3:1", "192.0.2.4:1", z.Addr()},
		dial), 4*time.Second, "one that cannot be reached costs 5 s")
	assert.Less(t, lock([]string{near, z.Addr()}, dial), 4*time.Second, "the near one is always there sooner")
	b := newBackend(t, []string{near, "192.0.2.1:1"}, zookeeper.Options{Dial: dial})
	_, err := locktest.Ask(within(t, soon), b, asking("dialled", false))
	require.ErrorContains(t, err, "192.0.2.1:1: no connection", "that it cannot be reached is told")
	slow := lab.StartProxy(t, z.Addr())
	slow.SetDelay(100 * time.Millisecond)
	locktest.Eventually(t, soon, "while one that is there takes its time, others are not dialed beside it", func() bool {
		var dialed atomic.Int32
		lock([]string{"192.0.2.1:1", "192.0.2.2:1"}, func(ctx context.Context, _ string) (net.Conn, error) {
			dialed.Add(1)
			return new(net.Dialer).DialContext(ctx, "tcp", slow.Addr())
		})
		return dialed.Load() == 1
	})
	var servers []string
	for range 2 {
		p := lab.StartProxy(t, z.Addr())
		p.Set(lab.Drop)
		servers = append(servers, p.Addr())
	}
	assert.Less(t, lock(append(servers, z.Addr()), nil), 7*time.Second)
}

// On a network that is silent from now on, each call returns, although its context does not end: a connection
// without an answer is given up after a quarter of the session, half a second here. (With a context: see the suite.)
func testSilentNetworkHangsNobody(t *testing.T, z *lab.ZooKeeper) {
	p := lab.StartProxy(t, z.Addr())
	const session = 2 * time.Second
	opts := zookeeper.Options{SessionTimeout: session}
	b, fresh := newBackend(t, []string{p.Addr()}, opts), newBackend(t, []string{p.Addr()}, opts)
	g := acquire(t, b, asking("silent", false))
	p.Set(lab.Drop)
	calls := map[string]func(context.Context) error{
		"Inspect":    func(ctx context.Context) error { _, err := b.Inspect(ctx, "silent"); return err },
		"List":       func(ctx context.Context) error { return locktest.Lists(ctx, b) },
		"Break":      func(ctx context.Context) error { _, err := locktest.Break(ctx, b, "silent"); return err },
		"RaiseToken": func(ctx context.Context) error { return g.Hold.(driver.TokenRaiser).RaiseToken(ctx, g.Token+far) },
		"Check":      func(ctx context.Context) error { _, err := b.Check(ctx); return err },
		"Release":    func(ctx context.Context) error { return g.Hold.Release(ctx, 0) },
		"Renew":      func(ctx context.Context) error { _, err := g.Hold.Renew(ctx); return err },
	}
	for _, b := range []*zookeeper.Backend{b, fresh} {
		for _, wait := range []bool{false, true} {
			calls[fmt.Sprintf("Acquire, wait %t, fresh %t", wait, b == fresh)] = func(ctx context.Context) error {
				_, err := locktest.Ask(ctx, b, asking("other", wait))
				return err
			}
		}
	}
	var all sync.WaitGroup
	for what, call := range calls {
		all.Go(func() {
			began := time.Now()
			err := call(context.Background())
			assert.Less(t, time.Since(began), 30*time.Second, what)
			if what != "Check" && what != "Renew" { // it may be known, or is a finding
				assert.Error(t, err, what)
			}
		})
	}
	all.Wait()
}

// A leader that resumes after a pause longer than the session's timeout takes nothing
// from clients that its successor has served.
func testLeaderStoppedPastTheTimeout(t *testing.T, e *lab.ZooKeeperEnsemble) {
	lab.NeedPause(t)
	const session = 4 * time.Second
	l, err := newClient(t, e.Addrs(), zookeeper.Options{SessionTimeout: session}).Lock(within(t, soon),
		"stopped")
	require.NoError(t, err)
	old := e.Leader(t)
	old.Pause()
	t.Cleanup(old.Resume)
	successor := e.Leader(t, e.Others(old)...)
	stopped := time.Now()
	other := newClient(t, []string{successor.Addr()}, zookeeper.Options{SessionTimeout: session})
	in := later(t, func() (entrance, error) {
		next, err := other.Lock(within(t, time.Minute), "stopped")
		return entrance{next, time.Now()}, err
	})
	time.Sleep(time.Until(stopped.Add(session + session/4)))
	old.Resume()
	next := entrance{}
	select {
	case next = <-in:
		assert.False(t, next.at.Before(l.Until()), "another got in %v before Until", l.Until().Sub(next.at))
	case <-time.After(session):
		assert.NoError(t, l.Err())
	}
	_ = l.Unlock(within(t, soon))
	if next.at.IsZero() {
		next = <-in
	}
	require.NotNil(t, next.Lease)
	require.NoError(t, next.Unlock(within(t, soon)))
}
