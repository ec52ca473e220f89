package single_test

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/internal/redisconn"
	"github.com/golockers/locker/single"
)

func pass(t *testing.T, node *single.Node, old, next string, yield bool) single.Answer {
	t.Helper()
	a, err := node.Pass(t.Context(), "n", old, next, ttl, yield)
	require.NoError(t, err)
	return a
}

func TestPassIsOneGrantHoweverOftenItArrives(t *testing.T) {
	server, node := setUp(t)
	first := acquire(t, node, single.Request{Name: "n", Value: "a:x", TTL: ttl})
	a := pass(t, node, "a:x", "b:y", false)
	assert.True(t, a.Granted)
	assert.Greater(t, a.Token, first.Token)
	again := pass(t, node, "a:x", "b:y", false)
	assert.True(t, again.Granted && again.Again)
	assert.Equal(t, a.Token, again.Token, "no second token")
	assert.Equal(t, "b:y", owned(t, server, "n"))

	// One that comes when the lock is another's, or nobody's, changes nothing.
	require.True(t, pass(t, node, "b:y", "c:z", false).Granted)
	assert.True(t, pass(t, node, "a:x", "b:y", true).Lost)
	assert.Equal(t, "c:z", owned(t, server, "n"))
	_, err := node.Release(t.Context(), "n", "c:z")
	require.NoError(t, err)
	assert.True(t, pass(t, node, "a:x", "b:y", false).Lost)
	assert.Equal(t, int64(0), server.MustDo(t, "EXISTS", redisconn.LockKey("n")))
}

// The next one is taken back before the request arrives, and the release of the old one after it.
func TestATakeBackOutrunsAPass(t *testing.T) {
	for _, yield := range []bool{false, true} {
		server, node := setUp(t)
		acquire(t, node, single.Request{Name: "n", Value: "a", TTL: ttl})
		_, err := node.TakeBack(t.Context(), "n", "b", time.Minute)
		require.NoError(t, err)
		assert.True(t, pass(t, node, "a", "b", yield).Void)
		state, err := node.Release(t.Context(), "n", "a")
		require.NoError(t, err)
		assert.Equal(t, redisconn.Mine, state)
		assert.True(t, pass(t, node, "a", "b", yield).Lost, "a later copy")
		assert.Equal(t, int64(0), server.MustDo(t, "EXISTS", redisconn.LockKey("n")), "R7: a ghost holds the lock")
	}
}

// The request arrives when its caller has given up and what it asked for was taken back, but not
// yet what it was to release.
func TestAPassThatArrivesLateGrantsNothing(t *testing.T) {
	server := lab.StartRedis(t)
	proxy := lab.StartProxy(t, server.Addr())
	b, err := single.New(newClient(t, &redis.Options{Addr: proxy.Addr(),
		ReadTimeout: 500 * time.Millisecond}), nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = b.Close() })
	get := func() locker.Grant {
		g, err := b.Acquire(t.Context(), locker.Request{Name: "n", Owner: owner(), TTL: ttl})
		require.NoError(t, err)
		return g
	}
	request := func() locker.Request { return locker.Request{Name: "n", Owner: owner(), TTL: ttl} }
	g, err := get().Hold.(locker.Passer).Pass(t.Context(), request(), true) // the server knows the scripts
	require.NoError(t, err)
	require.NoError(t, g.Hold.Release(t.Context()))

	old, req := get(), request()
	letGo := holdRequest(t, server, proxy, req.Owner)
	ctx, cancel := context.WithTimeout(t.Context(), tooShortToGoAlone)
	defer cancel()
	g, err = old.Hold.(locker.Passer).Pass(ctx, req, false)
	require.Error(t, err)
	require.NotNil(t, g.Hold)
	require.NoError(t, g.Hold.Release(t.Context()))
	letGo()
	_, err = old.Hold.Renew(t.Context())
	require.NoError(t, err, "R7: a ghost has the lock")
	require.NoError(t, old.Hold.Release(t.Context()))
	assert.Equal(t, int64(0), server.MustDo(t, "EXISTS", redisconn.LockKey("n")))
}

func TestALostReplyOfAPassIsAskedForAgain(t *testing.T) {
	_, proxy, node := behindProxy(t)
	pass(t, node, "nobody", "a", false) // the server knows the script
	again(t, func() bool {
		old, next := owner(), owner()
		_, err := node.Acquire(t.Context(), single.Request{Name: old, Value: old, TTL: ttl})
		require.NoError(t, err)
		warm(t, node)
		cancel := proxy.LoseReply(next)
		a, err := node.Pass(t.Context(), old, old, next, ttl, false)
		if err != nil {
			return false
		}
		assert.False(t, cancel(), "the reply was lost")
		assert.True(t, a.Granted && a.Again && a.Repeated)
		return true
	})
}

// Clients that wait get the lock in the order in which they came, each in its turn.
func TestClientsTakeTurns(t *testing.T) {
	server := lab.StartRedis(t)
	var nodes [3]*single.Node
	for i := range nodes {
		nodes[i] = newNode(t, newClient(t, &redis.Options{Addr: server.Addr()}), nil)
	}
	ask := func(i int, value string) single.Answer {
		t.Helper()
		return acquire(t, nodes[i], single.Request{Name: "n", Value: value, TTL: ttl, Waiting: true})
	}
	require.True(t, ask(0, "a").Granted)
	for range 2 {
		require.False(t, ask(1, "b").Granted)
		require.False(t, ask(2, "c").Granted)
	}
	before := pttl(t, server, redisconn.LockKey("n")+":wait")
	require.True(t, pass(t, nodes[0], "a", "a2", false).Granted, "not its turn to yield")
	again(t, func() bool { // within the time that a turn lasts
		if !pass(t, nodes[0], "a2", "a3", true).Turn {
			return false
		}
		st, err := nodes[0].Inspect(t.Context(), "n")
		require.NoError(t, err)
		own, other, next := ask(0, "a4"), ask(2, "c2"), ask(1, "b2")
		if !next.Granted { // the machine was busy: anybody could have it, and nobody waits for it now
			for _, v := range []string{"a4", "c2"} {
				_, err := nodes[0].TakeBack(t.Context(), "n", v, time.Second)
				require.NoError(t, err)
			}
			server.MustDo(t, "DEL", redisconn.LockKey("n")+":wait")
			ask(0, "a2")
			ask(1, "b")
			ask(2, "c")
			return false
		}
		assert.False(t, own.Granted || other.Granted)
		assert.LessOrEqual(t, own.Left, 200*time.Millisecond)
		assert.False(t, st.Held, "nobody has it")
		assert.True(t, st.Waited)
		return true
	})
	assert.InDelta(t, before, pttl(t, server, redisconn.LockKey("n")+":wait"), float64(soon),
		"who waits for long is noted for as long")
	require.True(t, pass(t, nodes[1], "b2", "b3", true).Turn)
	require.Eventually(t, func() bool { return ask(0, "a5").Granted }, soon, time.Millisecond,
		"the turn of who does not come is over")
	assert.True(t, pass(t, nodes[0], "a5", "a6", true).Turn, "its own: it asked before the others")
	assert.Equal(t, int64(0), server.MustDo(t, "EXISTS", redisconn.LockKey("n")+":wait"))
	assert.True(t, acquire(t, nodes[2], single.Request{Name: "n", Value: "c3", TTL: ttl}).Granted,
		"who does not wait does not wait for a turn")
}

// A message that is for another client wakes this one a little later, in case the other does not come.
func TestWhoseTurnItIsNotIsWokenAllTheSame(t *testing.T) {
	_, node := setUp(t)
	other := newNode(t, newClient(t, &redis.Options{Addr: node.Addr()}), nil)
	woken := make(chan struct{}, 1)
	acquire(t, node, single.Request{Name: "n", Value: "a", TTL: ttl})
	stop, err := other.Subscribe(t.Context(), "n", func() { woken <- struct{}{} })
	require.NoError(t, err)
	defer stop()
	acquire(t, node, single.Request{Name: "n", Value: "b", TTL: ttl, Waiting: true})
	require.True(t, pass(t, node, "a", "c", true).Turn)
	select {
	case <-woken:
	case <-time.After(soon):
		t.Fatal("it waits for a poll")
	}
	require.Eventually(t, func() bool {
		return acquire(t, other, single.Request{Name: "n", Value: "d", TTL: ttl}).Granted
	}, soon, time.Millisecond)
}

// Four clients with four callers each: everybody gets the lock, none much more often than another.
func TestBusyClientsShareALockEvenly(t *testing.T) {
	s := lab.StartRedis(t)
	const grants = 2000
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
	assert.Less(t, s.Commands(t).ByName["evalsha"], int64(3*grants), "most pairs are one request: without passing it is four")
}

// What stands in the way of the next one does not keep the holder from letting go.
func TestAPassThatIsRefusedIsARelease(t *testing.T) {
	s := lab.StartRedis(t)
	c := client(t, s.Addr(), nil)
	l, err := c.Lock(t.Context(), "n")
	require.NoError(t, err)
	next := make(chan error, 1)
	go func() {
		l, err := c.Lock(context.Background(), "n", locker.TTL(time.Second))
		if err == nil {
			err = l.Unlock(context.Background())
		}
		next <- err
	}()
	require.Eventually(t, func() bool { return c.Stats().Waiting == 1 }, soon, time.Millisecond)
	s.MustDo(t, "CONFIG", "SET", "maxmemory", "1")
	require.NoError(t, l.Unlock(t.Context()))
	assert.Equal(t, int64(0), s.MustDo(t, "EXISTS", redisconn.LockKey("n")))
	s.MustDo(t, "CONFIG", "SET", "maxmemory", "0")
	require.NoError(t, <-next)
}

// Each refusal reads the note, so it is bounded.
func TestTheLineOfClientsIsBounded(t *testing.T) {
	server, node := setUp(t)
	acquire(t, node, single.Request{Name: "n", Value: "a", TTL: ttl})
	server.MustDo(t, "SET", redisconn.LockKey("n")+":wait", strings.Repeat("abcdef01=10;", 200))
	require.False(t, acquire(t, node, single.Request{Name: "n", Value: "b", TTL: ttl, Waiting: true}).Granted)
	assert.Equal(t, int64(2400), server.MustDo(t, "STRLEN", redisconn.LockKey("n")+":wait"))
}

// A client for which each request takes longer than a turn of a near one lasts: the near client is
// busy all the time, and does not keep it out.
func TestAClientFarAwayGetsItsTurn(t *testing.T) {
	s := lab.StartRedis(t)
	proxy := lab.StartProxy(t, s.Addr())
	proxy.SetDelay(20 * time.Millisecond)
	near, far := client(t, s.Addr(), nil), client(t, proxy.Addr(), nil)
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for ctx.Err() == nil {
				if l, err := near.Lock(ctx, "n"); err == nil {
					assert.NoError(t, l.Unlock(context.Background()))
				}
			}
		})
	}
	defer all.Wait()
	defer cancel()
	for range 5 {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		l, err := far.Lock(ctx, "n")
		cancel()
		require.NoError(t, err)
		require.NoError(t, l.Unlock(context.Background()))
	}
}

// A refusal is a read, where the note says already that its client waits, and for long enough: a poll is not
// written to disk or sent to replicas.
func TestWhoIsNotedAsWaitingIsNotNotedAgain(t *testing.T) {
	server, node := setUp(t)
	note := redisconn.LockKey("n") + ":wait"
	ask := func(value string) {
		acquire(t, node, single.Request{Name: "n", Value: value, TTL: ttl,
			Waiting: true})
	}
	written := func() string { return server.Info(t, "persistence")["rdb_changes_since_last_save"] }
	ask("a")
	ask("b")
	before, noted := written(), server.MustDo(t, "GET", note)
	ask("c")
	assert.Equal(t, before, written())
	assert.Equal(t, noted, server.MustDo(t, "GET", note))

	server.MustDo(t, "PEXPIRE", redisconn.LockKey("n"), 4*ttl.Milliseconds()) // renewed
	ask("d")
	assert.Equal(t, noted, server.MustDo(t, "GET", note))
	assert.Greater(t, pttl(t, server, note), 3*ttl, "it is to outlive the lock")
}
