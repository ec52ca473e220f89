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

// A follower reports live sessions to the leader only every half tick: if it is cut off
// after a heartbeat, the leader counts from an earlier one.
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
		// The holder knows only this server, so it cannot go elsewhere.
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

// A holder and the waiters of three clients survive what happens to the servers: nothing
// is lost, and the waiters get the lock in their order.
func testHolderAndWaitersSurvive(t *testing.T, e *lab.ZooKeeperEnsemble) {
	lab.NeedPause(t)
	const session, waiters = 40 * time.Second, 3 // longer than an election on a busy machine
	opts := zookeeper.Options{SessionTimeout: session}
	l := locktest.Lock(t, newClient(t, e.Addrs(), opts), "job")
	var all sync.WaitGroup
	order := make(chan int, waiters)
	for i := range waiters {
		c := newClient(t, e.Addrs(), opts)
		all.Go(func() {
			l, err := c.Lock(within(t, 5*time.Minute), "job")
			if assert.NoError(t, err) {
				order <- i
				assert.NoError(t, l.Unlock(within(t, soon)))
			}
		})
		eventuallyLen(t, e.Servers[0].Addr(), "job", i+2)
	}
	survives := func(what string, happen func()) {
		began := time.Now()
		happen()
		t.Logf("%s: it took %v", what, time.Since(began))
		renewed := l.Until()
		require.Eventually(t, func() bool { return l.Err() != nil || l.Until().After(renewed) }, 2*session,
			10*time.Millisecond, what)
		require.NoError(t, l.Err(), "nothing was lost when %s", what)
		require.Empty(t, order, what)
	}
	old := e.Leader(t)
	survives("the leader was killed", func() { old.Kill(); e.Leader(t, e.Others(old)...) })
	e.Restart(t)
	old = e.Leader(t)
	survives("the leader was paused", func() {
		old.Pause()
		t.Cleanup(old.Resume)
		e.Leader(t, e.Others(old)...)
	})
	old.Resume()
	survives("all servers were killed and restarted", func() {
		for _, s := range e.Servers {
			s.Kill()
		}
		e.Restart(t)
	})
	require.NoError(t, l.Unlock(within(t, soon)))
	all.Wait()
	close(order)
	for i := range waiters {
		assert.Equal(t, i, <-order)
	}
}
