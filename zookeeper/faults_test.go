package zookeeper_test

import (
	"context"
	"net"
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

// A server with as many connections of this host as it allows hangs up on the
// next one. That passes: Open waits for it, and says what it was if it does not.
func TestLimitOfConnectionsPerHost(t *testing.T) {
	t.Parallel()
	z := lab.StartZooKeeper(t, lab.WithConfig("maxClientCnxns", "1"))
	url := "zookeeper://" + z.Addr() + "/locks?ttl=8s"
	other, leave := dial(t, []string{z.Addr()})
	t.Cleanup(leave)
	_, _, err := other.Exists("/")
	require.NoError(t, err)
	began := time.Now()
	_, err = locker.Open(within(t, time.Second), url, nil, zookeeper.Openers)
	require.ErrorIs(t, err, driver.ErrUnavailable)
	assert.ErrorIs(t, err, context.DeadlineExceeded)
	assert.Contains(t, err.Error(), "maxClientCnxns")
	assert.Greater(t, time.Since(began), 900*time.Millisecond, "it does not fail at the first sign")

	b := newBackend(t, []string{z.Addr()}, zookeeper.Options{})
	_, err = locktest.Ask(within(t, soon), b, asking("a", false))
	require.NoError(t, b.Close())
	require.ErrorIs(t, err, driver.ErrUnavailable)
	assert.Contains(t, err.Error(), "maxClientCnxns")

	time.AfterFunc(300*time.Millisecond, leave)
	c, err := locker.Open(within(t, soon), url, nil, zookeeper.Openers)
	require.NoError(t, err)
	require.NoError(t, c.Close())
}

// A server that has local sessions only refuses ephemeral nodes, by a number
// that the driver has no name for.
func TestProveLocalSessionsAreRefusedAtOnce(t *testing.T) {
	lab.NeedProve(t)
	t.Parallel()
	e := lab.StartZooKeeperEnsemble(t, 3, lab.WithConfig("localSessionsEnabled", "true"))
	began := time.Now()
	_, err := newImpatient(t, e.Addrs(), zookeeper.Options{}).Lock(within(t, soon), "a")
	require.Error(t, err)
	assert.NotErrorIs(t, err, driver.ErrUnavailable, "it does not pass")
	assert.NotErrorIs(t, err, driver.ErrHeld)
	assert.Contains(t, err.Error(), "localSessionsUpgradingEnabled")
	assert.Less(t, time.Since(began), soon/2)
}

// Servers that cannot be reached, or take connections and say nothing, are
// tried beside those that answer, and remembered.
func testSilentServersBesideOneThatAnswers(t *testing.T, z *lab.ZooKeeper) {
	lock := func(servers []string, dial func(context.Context, string) (net.Conn, error)) time.Duration {
		b := newBackend(t, servers, zookeeper.Options{SessionTimeout: 30 * time.Second, Dial: dial})
		began := time.Now()
		g := locktest.Acquire(t, b, asking("dialled", false))
		require.NoError(t, g.Hold.Release(within(t, soon), 0))
		return time.Since(began)
	}
	unreachable := func(ctx context.Context, addr string) (net.Conn, error) {
		if addr != z.Addr() {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		var d net.Dialer
		return d.DialContext(ctx, "tcp", addr)
	}
	assert.Less(t, lock([]string{"192.0.2.1:1", "192.0.2.2:1", "192.0.2.3:1", "192.0.2.4:1", z.Addr()},
		unreachable), 4*time.Second, "one that cannot be reached costs 5 s")
	var servers []string
	for range 2 {
		p := lab.StartProxy(t, z.Addr())
		p.Set(lab.Drop)
		servers = append(servers, p.Addr())
	}
	assert.Less(t, lock(append(servers, z.Addr()), nil), 7*time.Second)
}

// A leader that was stopped past the session's timeout and goes on takes nothing
// from those who were served by its successor.
func testLeaderStoppedPastTheTimeout(t *testing.T, e *lab.ZooKeeperEnsemble) {
	lab.NeedPause(t)
	const session = 4 * time.Second
	l, err := newClient(t, e.Addrs(), zookeeper.Options{SessionTimeout: session}).Lock(within(t, soon),
		"stopped")
	require.NoError(t, err)
	old := e.Leader(t)
	old.Pause()
	t.Cleanup(old.Resume)
	e.Leader(t, e.Others(old)...)
	stopped := time.Now()
	other := newClient(t, addrsOf(e.Others(old)), zookeeper.Options{SessionTimeout: session})
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
	if next.Lease == nil {
		next = <-in
	}
	require.NoError(t, next.Unlock(within(t, soon)))
}

func addrsOf(servers []*lab.ZooKeeper) (addrs []string) {
	for _, s := range servers {
		addrs = append(addrs, s.Addr())
	}
	return addrs
}
