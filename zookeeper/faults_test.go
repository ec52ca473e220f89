package zookeeper_test

import (
	"context"

	"fmt"
	"math/rand/v2"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/internal/testserver"
	"github.com/golockers/locker/zookeeper"
)

// queueOf returns the nodes in the queue of name, as seen now.
func queueOf(t testing.TB, addr, name string) []string {
	t.Helper()
	c, done := dial(t, []string{addr})
	defer done()
	nodes, err := childrenOf(c, name)
	require.NoError(t, err)
	return nodes
}

func eventuallyLen(t testing.TB, addr, name string, n int) {
	t.Helper()
	var got []string
	c, done := dial(t, []string{addr})
	defer done()
	require.Eventually(t, func() bool {
		nodes, err := childrenOf(c, name)
		got = nodes
		return err == nil && len(nodes) == n
	}, soon, 5*time.Millisecond, "%d nodes in the queue, have %v", n, &got)
}

// A follower tells the leader who is alive only every half tick: when it is cut
// off after a heartbeat, the leader counts from an earlier one.
func TestFollowerCutOffRightAfterAHeartbeat(t *testing.T) {
	const session, rounds = 4 * time.Second, 6
	e := testserver.StartZooKeeperEnsemble(t, 3, testserver.WithTick(1300*time.Millisecond))
	leader := e.Leader(t)
	follower := e.Others(leader)[0]
	other := newClient(t, []string{leader.Addr()}, zookeeper.Options{SessionTimeout: session})
	for round := range rounds {
		name := fmt.Sprintf("cut-%d", round)
		// The holder knows this one server: it cannot go elsewhere.
		b := newBackend(t, []string{follower.Addr()}, zookeeper.Options{SessionTimeout: session})
		holder := locker.New(b, nil)
		l, err := holder.Lock(within(t, soon), name)
		require.NoError(t, err)
		in := make(chan time.Time, 1)
		var got *locker.Lease
		go func() {
			got, err = other.Lock(within(t, 4*session), name)
			in <- time.Now()
		}()
		eventuallyLen(t, leader.Addr(), name, 2)
		time.Sleep(session/2 + rand.N(session/2))
		e.Isolate(follower, testserver.Drop)
		at := <-in
		require.NoError(t, err)
		t.Logf("round %d: the next got in %v after Until", round, at.Sub(l.Until()))
		assert.False(t, at.Before(l.Until()), "another got in %v before the holder's Until", l.Until().Sub(at))
		require.ErrorIs(t, l.Err(), locker.ErrLost)
		e.Isolate(follower, testserver.Pass)
		require.NoError(t, got.Unlock(within(t, soon)))
		_ = holder.Close()
		_ = b.Close()
		require.Eventually(t, func() bool { mode, _ := follower.Mode(); return mode == "follower" }, time.Minute, 10*time.Millisecond)
	}
}

// A holder and waiters of three clients live through what happens to the
// servers: nobody is told of a loss, and the waiters come in their order.
func survives(t *testing.T, e *testserver.ZooKeeperEnsemble, happen func()) {
	t.Helper()
	const session = 10 * time.Second
	opts := zookeeper.Options{SessionTimeout: session}
	l, err := newClient(t, e.Addrs(), opts).Lock(within(t, soon), "job")
	require.NoError(t, err)
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
	require.Eventually(t, func() bool { return l.Err() != nil || l.Until().After(renewed) }, 2*session, 10*time.Millisecond)
	require.NoError(t, l.Err(), "nothing was lost")
	mu.Lock()
	assert.Empty(t, order)
	mu.Unlock()
	require.NoError(t, l.Unlock(within(t, soon)))
	all.Wait()
	assert.Equal(t, []int{0, 1, 2}, order)
}

func TestLeaderKilledWithHolderAndWaiters(t *testing.T) {
	e := testserver.StartZooKeeperEnsemble(t, 3)
	survives(t, e, func() {
		old := e.Leader(t)
		old.Kill()
		e.Leader(t, e.Others(old)...)
	})
}

func TestLeaderPausedWithHolderAndWaiters(t *testing.T) {
	testserver.NeedPause(t)
	e := testserver.StartZooKeeperEnsemble(t, 3)
	survives(t, e, func() {
		old := e.Leader(t)
		old.Pause()
		t.Cleanup(old.Resume)
		e.Leader(t, e.Others(old)...)
	})
}

func TestAllServersKilledAndRestarted(t *testing.T) {
	e := testserver.StartZooKeeperEnsemble(t, 3)
	survives(t, e, func() {
		for _, s := range e.Servers {
			s.Kill()
		}
		e.Restart(t)
	})
}

// A waiter whose session has expired takes its place anew, and gets the lock.
func TestSessionExpiresWhileWaiting(t *testing.T) {
	const session = 2 * time.Second
	z := testserver.StartZooKeeper(t)
	p := testserver.StartProxy(t, z.Addr())
	held, err := newClient(t, []string{z.Addr()}, zookeeper.Options{SessionTimeout: session}).Lock(within(t, soon), "a")
	require.NoError(t, err)
	waiter := newClient(t, []string{p.Addr()}, zookeeper.Options{SessionTimeout: session})
	type answer struct {
		l   *locker.Lease
		err error
	}
	in := make(chan answer, 1)
	go func() {
		l, err := waiter.Lock(within(t, time.Minute), "a")
		in <- answer{l, err}
	}()
	eventuallyLen(t, z.Addr(), "a", 2)
	before := queueOf(t, z.Addr(), "a")
	// Within the time that a waiter sits out, from its side; from the service's
	// side the session must have ended: the replies are what is lost.
	p.SetRequests(testserver.Drop)
	eventuallyLen(t, z.Addr(), "a", 1)
	p.SetRequests(testserver.Pass)
	select {
	case a := <-in:
		require.ErrorIs(t, a.err, locker.ErrUnavailable, "an outage longer than the session may end the wait")
		go func() {
			l, err := waiter.Lock(within(t, time.Minute), "a")
			in <- answer{l, err}
		}()
	default:
	}
	eventuallyLen(t, z.Addr(), "a", 2)
	assert.NotEqual(t, before, queueOf(t, z.Addr(), "a"), "not the node of the session that has expired")
	require.NoError(t, held.Unlock(within(t, soon)))
	a := <-in
	require.NoError(t, a.err)
	require.NoError(t, a.l.Err())
	require.NoError(t, a.l.Unlock(within(t, soon)))
	eventuallyLen(t, z.Addr(), "a", 0)
}

func TestCancelledAtEveryStepLeavesNothing(t *testing.T) {
	z := testserver.StartZooKeeper(t)
	p := testserver.StartProxy(t, z.Addr())
	c := newClient(t, []string{p.Addr()}, zookeeper.Options{})
	other := newClient(t, []string{z.Addr()}, zookeeper.Options{})
	l, err := c.Lock(within(t, soon), "a")
	require.NoError(t, err)
	require.NoError(t, l.Unlock(within(t, soon)))
	const delay = 4 * time.Millisecond // one way; a Lock takes two round trips and more
	p.SetDelay(delay)
	for _, contended := range []bool{false, true} {
		var held *locker.Lease
		if contended {
			held, err = other.Lock(within(t, soon), "a")
			require.NoError(t, err)
		}
		for after := time.Duration(0); after < 8*delay; after += delay / 4 {
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(after, cancel)
			began := time.Now()
			l, err := c.Lock(ctx, "a")
			took := time.Since(began)
			cancel()
			if err == nil {
				assert.False(t, contended)
				require.NoError(t, l.Unlock(within(t, soon)))
				continue
			}
			require.ErrorIs(t, err, context.Canceled)
			assert.Less(t, took, after+500*time.Millisecond, "R8")
		}
		if contended {
			eventuallyLen(t, z.Addr(), "a", 1)
			require.NoError(t, held.Unlock(within(t, soon)))
		}
		eventuallyLen(t, z.Addr(), "a", 0)
		l, err := other.TryLock(within(t, soon), "a")
		require.NoError(t, err, "the next client gets in at once")
		require.NoError(t, l.Unlock(within(t, soon)))
	}
}

func TestNodeIsFoundAgainAfterALostReply(t *testing.T) {
	z := testserver.StartZooKeeper(t)
	p := testserver.StartProxy(t, z.Addr())
	c := newClient(t, []string{p.Addr()}, zookeeper.Options{})
	l, err := c.Lock(within(t, soon), "a")
	require.NoError(t, err)
	require.NoError(t, l.Unlock(within(t, soon)))
	for range 5 {
		p.CutReply("-lock-")
		l, err = c.Lock(within(t, soon), "a")
		require.NoError(t, err)
		var node zookeeper.Node
		require.True(t, l.As(&node))
		assert.Equal(t, []string{node.Path}, queueOf(t, z.Addr(), "a"), "the one that was made without an answer")
		token, _ := l.Token()
		assert.Equal(t, uint64(node.Czxid), token)
		require.NoError(t, l.Unlock(within(t, soon)))
		assert.Empty(t, queueOf(t, z.Addr(), "a"))
	}
}

func TestLostReplyAndGivenUp(t *testing.T) {
	z := testserver.StartZooKeeper(t)
	p := testserver.StartProxy(t, z.Addr())
	c := newClient(t, []string{p.Addr()}, zookeeper.Options{SessionTimeout: 2 * time.Second})
	l, err := c.Lock(within(t, soon), "a")
	require.NoError(t, err)
	require.NoError(t, l.Unlock(within(t, soon)))
	for _, what := range []string{"-lock-", "/locker/a"} {
		p.LoseReply(what) // this connection is silent from now on
		began := time.Now()
		_, err = c.Lock(within(t, 50*time.Millisecond), "a")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, locker.ErrUnavailable)
		assert.Less(t, time.Since(began), time.Second)
		// The session lives on another connection; the node is gone.
		eventuallyLen(t, z.Addr(), "a", 0)
		l, err = c.Lock(within(t, soon), "a")
		require.NoError(t, err)
		require.NoError(t, l.Unlock(within(t, soon)))
	}
}

func TestNodeOfAnotherSessionIsDeletedAndNotUsed(t *testing.T) {
	z := testserver.StartZooKeeper(t)
	b := newBackend(t, []string{z.Addr()}, zookeeper.Options{})
	admin, done := dial(t, []string{z.Addr()})
	defer done()
	req := locker.Request{Name: "a", Owner: owner(), TTL: time.Second, Wait: true, Lost: func() {}}
	grant, err := b.Acquire(within(t, soon), locker.Request{Name: "a", Owner: owner(), TTL: time.Second, Lost: func() {}})
	require.NoError(t, err)
	require.NoError(t, grant.Hold.Release(within(t, soon)))
	old, err := admin.Create("/locker/a/"+req.Owner+"-lock-", nil, zk.FlagEphemeral|zk.FlagSequence, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
	grant, err = b.Acquire(within(t, soon), req)
	require.NoError(t, err)
	nodes := queueOf(t, z.Addr(), "a")
	require.Len(t, nodes, 1)
	assert.NotEqual(t, old, nodes[0])
	require.NoError(t, grant.Hold.Release(within(t, soon)))
}

var totalWatches = regexp.MustCompile(`Total watches:(\d+)`)

func watchesOf(t testing.TB, z *testserver.ZooKeeper) int {
	t.Helper()
	text, err := z.FourLetters("wchs")
	m := totalWatches.FindStringSubmatch(text)
	if err != nil || len(m) != 2 {
		return -1 // a busy machine; whoever waits for a number asks again
	}
	n, err := strconv.Atoi(m[1])
	assert.NoError(t, err)
	return n
}

func TestWaitsThatAreGivenUpLeaveNoWatches(t *testing.T) {
	z := testserver.StartZooKeeper(t)
	holder := newClient(t, []string{z.Addr()}, zookeeper.Options{})
	waiter := newClient(t, []string{z.Addr()}, zookeeper.Options{})
	held, err := holder.Lock(within(t, soon), "a")
	require.NoError(t, err)
	for range 30 {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		_, err := waiter.Lock(ctx, "a")
		cancel()
		require.ErrorIs(t, err, context.DeadlineExceeded)
	}
	eventuallyLen(t, z.Addr(), "a", 1)
	// The holder's on its node, and one of the waiter's on the same node.
	require.Eventually(t, func() bool { return watchesOf(t, z) <= 2 }, soon, 10*time.Millisecond)
	require.NoError(t, held.Unlock(within(t, soon)))
	require.Eventually(t, func() bool { return watchesOf(t, z) == 0 }, soon, 10*time.Millisecond)
}

func TestAThousandWaitersOfOneClientAreOneNode(t *testing.T) {
	z := testserver.StartZooKeeper(t)
	held, err := newClient(t, []string{z.Addr()}, zookeeper.Options{}).Lock(within(t, soon), "a")
	require.NoError(t, err)
	c := newClient(t, []string{z.Addr()}, zookeeper.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for range 1000 {
		all.Go(func() {
			if l, err := c.Lock(ctx, "a"); err == nil {
				_ = l.Unlock(context.Background())
			}
		})
	}
	require.Eventually(t, func() bool { return c.Stats().Waiting == 1000 }, soon, time.Millisecond)
	eventuallyLen(t, z.Addr(), "a", 2)
	cancel()
	all.Wait()
	eventuallyLen(t, z.Addr(), "a", 1)
	require.NoError(t, held.Unlock(within(t, soon)))
}

func TestAReleaseWakesOneWaiter(t *testing.T) {
	const waiters = 12
	z := testserver.StartZooKeeper(t)
	held, err := newClient(t, []string{z.Addr()}, zookeeper.Options{}).Lock(within(t, soon), "a")
	require.NoError(t, err)
	var all sync.WaitGroup
	for i := range waiters {
		c := newClient(t, []string{z.Addr()}, zookeeper.Options{})
		all.Go(func() {
			l, err := c.Lock(within(t, soon), "a")
			if assert.NoError(t, err) {
				assert.NoError(t, l.Unlock(within(t, soon)))
			}
		})
		eventuallyLen(t, z.Addr(), "a", i+2)
	}
	// Each node is watched by the session behind it, and the holder's by its own.
	var text string
	require.Eventually(t, func() bool { return watchesOf(t, z) == waiters+1 }, soon, 10*time.Millisecond)
	text, err = z.FourLetters("wchp")
	require.NoError(t, err)
	for _, part := range strings.Split(text, "/locker/a/")[1:] {
		assert.LessOrEqual(t, strings.Count(part, "0x"), 2, text)
	}
	require.NoError(t, held.Unlock(within(t, soon)))
	all.Wait()
}

// A holder that is stopped by the system learns of its loss when it goes on.
func TestPausedHolder(t *testing.T) {
	testserver.NeedPause(t)
	const session = 2 * time.Second
	z := testserver.StartZooKeeper(t)
	c := newClient(t, []string{z.Addr()}, zookeeper.Options{SessionTimeout: session})
	child := testserver.StartChild(t, "hold", z.Addr(), "a", session.String())
	child.Expect(t, "holding", soon)
	child.Pause()
	l, err := c.Lock(within(t, soon), "a")
	require.NoError(t, err)
	child.Resume()
	assert.Contains(t, child.Expect(t, "over", soon), locker.ErrLost.Error())
	require.NoError(t, l.Err())
	require.NoError(t, l.Unlock(within(t, soon)))
}

func TestDeletedNodeIsTold(t *testing.T) {
	z := testserver.StartZooKeeper(t)
	c := newClient(t, []string{z.Addr()}, zookeeper.Options{})
	l, err := c.Lock(within(t, soon), "a")
	require.NoError(t, err)
	var node zookeeper.Node
	require.True(t, l.As(&node))
	admin, done := dial(t, []string{z.Addr()})
	defer done()
	_, err = admin.Set(node.Path, []byte("x"), -1)
	require.NoError(t, err)
	assert.Never(t, func() bool { return l.Err() != nil }, 100*time.Millisecond, 10*time.Millisecond, "a write to the node is not its end")
	require.NoError(t, admin.Delete(node.Path, -1))
	select {
	case <-l.Done():
	case <-time.After(time.Second):
		t.Error("not told")
	}
	require.ErrorIs(t, l.Err(), locker.ErrLost)
}

// The token is told by the header of an answer. It has to be the czxid on
// every server, also while others write.
func TestTokenIsTheCzxid(t *testing.T) {
	e := testserver.StartZooKeeperEnsemble(t, 3)
	var all sync.WaitGroup
	for i := range 6 {
		c := newClient(t, []string{e.Addrs()[i%3]}, zookeeper.Options{})
		all.Go(func() {
			admin, done := dial(t, []string{e.Addrs()[i%3]})
			defer done()
			for n := range 60 {
				l, err := c.Lock(within(t, soon), fmt.Sprintf("token-%d", n%3+i/3*3))
				if !assert.NoError(t, err) {
					return
				}
				var node zookeeper.Node
				assert.True(t, l.As(&node))
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

func TestManyWatchesSurviveAReconnection(t *testing.T) {
	const names = 1500 // more than one packet of them
	z := testserver.StartZooKeeper(t)
	p := testserver.StartProxy(t, z.Addr())
	holder := newClient(t, []string{z.Addr()}, zookeeper.Options{SessionTimeout: 30 * time.Second})
	waiter := newClient(t, []string{p.Addr()}, zookeeper.Options{SessionTimeout: 30 * time.Second})
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	limit := make(chan struct{}, 50)
	var leases sync.Map
	for i := range names {
		limit <- struct{}{}
		all.Go(func() {
			name := fmt.Sprintf("many-%d", i)
			l, err := holder.Lock(ctx, name)
			<-limit
			if !assert.NoError(t, err) {
				return
			}
			leases.Store(name, l)
			if l, err := waiter.Lock(ctx, name); err == nil {
				_ = l.Unlock(context.Background())
			}
		})
	}
	var have int
	require.Eventually(t, func() bool { have = watchesOf(t, z); return have == 2*names }, time.Minute, 50*time.Millisecond, "have %d", &have)
	p.Set(testserver.Reset)
	require.Eventually(t, func() bool { return watchesOf(t, z) == names }, soon, time.Millisecond)
	p.Set(testserver.Pass)
	require.Eventually(t, func() bool { return watchesOf(t, z) == 2*names }, soon, 10*time.Millisecond)
	cancel()
	all.Wait()
}
