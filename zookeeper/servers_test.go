package zookeeper_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
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

// A follower tells the leader who is alive only every half tick: when it is cut
// off after a heartbeat, the leader counts from an earlier one.
func TestProveFollowerCutOffRightAfterAHeartbeat(t *testing.T) {
	lab.NeedProve(t)
	t.Parallel()
	const session, rounds = 2500 * time.Millisecond, 4
	e := lab.StartZooKeeperEnsemble(t, 3, lab.WithConfig("tickTime", "800"))
	leader := e.Leader(t)
	follower := e.Others(leader)[0]
	other := locktest.Must(locker.New(newBackend(t, []string{leader.Addr()}, zookeeper.Options{SessionTimeout: session}),
		&locker.Options{TTL: session, OutageTimeout: soon}))
	t.Cleanup(func() { _ = other.Close() })
	for round := range rounds {
		name := fmt.Sprintf("cut-%d", round)
		// The holder knows this one server: it cannot go elsewhere.
		b := newBackend(t, []string{follower.Addr()}, zookeeper.Options{SessionTimeout: session})
		holder := locktest.Must(locker.New(b, &locker.Options{OutageTimeout: soon}))
		l := locktest.Lock(t, holder, name)
		in := later(t, func() (entrance, error) {
			l, err := other.Lock(within(t, soon), name)
			return entrance{l, time.Now()}, err
		})
		eventuallyLen(t, leader.Addr(), name, 2)
		time.Sleep(session/2 + rand.N(session/2))
		e.Isolate(follower, lab.Drop)
		got := <-in
		t.Logf("round %d: the next got in %v after Until", round, got.at.Sub(l.Until()))
		assert.False(t, got.at.Before(l.Until()), "another got in %v before the holder's Until", l.Until().Sub(got.at))
		require.ErrorIs(t, l.Err(), driver.ErrLost)
		e.Isolate(follower, lab.Pass)
		require.NoError(t, got.Unlock(within(t, soon)))
		_ = holder.Close()
		_ = b.Close()
		require.Eventually(t, func() bool { mode, _ := follower.Mode(); return mode == "follower" },
			time.Minute, 10*time.Millisecond)
	}
}

// A holder and waiters of three clients live through what happens to the
// servers: nobody is told of a loss, and the waiters come in their order.
func survives(t *testing.T, e *lab.ZooKeeperEnsemble, happen func()) {
	t.Helper()
	const session = 40 * time.Second // longer than an election on a busy machine
	opts := zookeeper.Options{SessionTimeout: session}
	l := locktest.Lock(t, newClient(t, e.Addrs(), opts), "job")
	var all sync.WaitGroup
	var mu sync.Mutex
	var order []int
	addr := e.Servers[0].Addr()
	for i := range 3 {
		c := newClient(t, e.Addrs(), opts)
		all.Go(func() {
			l, err := c.Lock(within(t, time.Minute), "job")
			if !assert.NoError(t, err) {
				return
			}
			mu.Lock()
			order = append(order, i)
			mu.Unlock()
			assert.NoError(t, l.Unlock(within(t, soon)))
		})
		eventuallyLen(t, addr, "job", i+2)
	}
	began := time.Now()
	happen()
	t.Logf("it took %v", time.Since(began))
	renewed := l.Until()
	require.Eventually(t, func() bool { return l.Err() != nil || l.Until().After(renewed) }, 2*session,
		10*time.Millisecond)
	require.NoError(t, l.Err(), "nothing was lost")
	mu.Lock()
	assert.Empty(t, order)
	mu.Unlock()
	require.NoError(t, l.Unlock(within(t, soon)))
	all.Wait()
	assert.Equal(t, []int{0, 1, 2}, order)
}

func testLeaderKilledWithHolderAndWaiters(t *testing.T, e *lab.ZooKeeperEnsemble) {
	survives(t, e, func() {
		old := e.Leader(t)
		old.Kill()
		e.Leader(t, e.Others(old)...)
	})
}

func testLeaderPausedWithHolderAndWaiters(t *testing.T, e *lab.ZooKeeperEnsemble) {
	lab.NeedPause(t)
	survives(t, e, func() {
		old := e.Leader(t)
		old.Pause()
		t.Cleanup(old.Resume)
		e.Leader(t, e.Others(old)...)
	})
}

func testAllServersKilledAndRestarted(t *testing.T, e *lab.ZooKeeperEnsemble) {
	survives(t, e, func() {
		for _, s := range e.Servers {
			s.Kill()
		}
		e.Restart(t)
	})
}

// The token is what the creation's transaction tells of its second write. It has
// to be the czxid on every server, also while others write.
func testTokenIsTheCzxid(t *testing.T, e *lab.ZooKeeperEnsemble) {
	var all sync.WaitGroup
	for i := range 6 {
		c := newClient(t, []string{e.Addrs()[i%3]}, zookeeper.Options{})
		admin := adminOf(t, e.Addrs()[i%3])
		all.Go(func() {
			for n := range 60 {
				l, err := c.Lock(within(t, soon), fmt.Sprintf("token-%d", n%3+i/3*3))
				if !assert.NoError(t, err) {
					return
				}
				node := nodeOf(t, l)
				_, stat, err := admin.Exists(node.Path)
				if assert.NoError(t, err) {
					token, _ := l.Token()
					assert.Equal(t, uint64(stat.Czxid), token)
					assert.Equal(t, stat.EphemeralOwner, node.Session)
				}
				assert.NoError(t, l.Unlock(within(t, soon)))
			}
		})
	}
	all.Wait()
}
