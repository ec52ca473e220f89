package single

import (
	"context"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/internal/locktest"
	"github.com/golockers/locker/internal/redisnode"
)

func pass(t *testing.T, node *Backend, old, next string, yield bool) answer {
	t.Helper()
	a, err := on(node).pass(t.Context(), keys("n", old), keys("n", next), ttl, yield)
	require.NoError(t, err)
	return a
}

// Clients that wait get the lock in the order in which they came, each in its turn.
func TestClientsTakeTurns(t *testing.T) {
	server := lab.StartRedis(t, withOnce)
	var nodes [3]*Backend
	for i := range nodes {
		nodes[i] = newOnce(t, server.Addr())
		subscribe(t, nodes[i], "n")
	}
	ask := func(i int, value string) answer {
		t.Helper()
		return acquire(t, nodes[i], "n", value, waiting)
	}
	require.True(t, ask(0, "a").granted)
	for range 2 {
		require.False(t, ask(1, "b").granted)
		require.False(t, ask(2, "c").granted)
	}
	before := server.TTL(t, redisnode.LockKey("n")+":wait")
	require.True(t, pass(t, nodes[0], "a", "a2", false).granted, "not its turn to yield")
	lab.Again(t, func() bool { // within the time that a turn lasts
		if !pass(t, nodes[0], "a2", "a3", true).turn {
			return false
		}
		st, err := nodes[0].inspect(t.Context(), "n")
		require.NoError(t, err)
		own, other, next := ask(0, "a4"), ask(2, "c2"), ask(1, "b2")
		if !next.granted { // the machine was busy: anybody could have it, and nobody waits for it now
			for _, v := range []string{"a4", "c2"} {
				release(t, nodes[0], "n", v, false, time.Second)
			}
			server.MustDo(t, "DEL", redisnode.LockKey("n")+":wait")
			ask(0, "a2")
			ask(1, "b")
			ask(2, "c")
			return false
		}
		assert.False(t, own.granted || other.granted)
		assert.LessOrEqual(t, own.left, 200*time.Millisecond)
		assert.False(t, st.Held, "nobody has it")
		assert.True(t, st.Waited)
		return true
	})
	assert.InDelta(t, before, server.TTL(t, redisnode.LockKey("n")+":wait"), float64(5*time.Second),
		"who waits for long is noted for as long")
	require.True(t, pass(t, nodes[1], "b2", "b3", true).turn)
	require.Eventually(t, func() bool { return ask(0, "a5").granted }, soon, time.Millisecond,
		"the turn of who does not come is over")
	require.True(t, pass(t, nodes[0], "a5", "a6", true).granted, "its own turn, which it need not wait for")
	assert.Equal(t, "", server.MustDo(t, "GET", redisnode.LockKey("n")+":wait"))
	release(t, nodes[0], "n", "a6", false, 0)
	server.MustDo(t, "SET", redisnode.LockKey("n"), "turn "+nodes[1].me, "PX", 60_000)
	assert.True(t, acquire(t, nodes[2], "n", "c3", once).granted,
		"who does not wait does not wait for a turn")
}

// A lock is not kept for a client that has no connection any more, and for one that is paused or far away it is.
func TestWhoIsNotThereHasNoTurn(t *testing.T) {
	server := lab.StartRedis(t, withOnce)
	proxy := lab.StartProxy(t, server.Addr())
	holder := newOnce(t, server.Addr())
	longTurns := strings.Replace(passText, turnLua, "local TURN_MS = 60000", 1) // however slow the machine is
	require.NotEqual(t, passText, longTurns)
	holder.scripts.pass = redisnode.NewScript(4, holder.node.Publish, longTurns).ForOne()
	acquire(t, holder, "n", "a", once)
	waiter := func(value, addr string) *Backend {
		node := newOnce(t, addr)
		subscribe(t, node, "n")
		acquire(t, node, "n", value, waiting)
		return node
	}
	waiter("gone", proxy.Addr())
	proxy.Set(lab.Reset) // nor can it connect again
	paused := lab.StartProxy(t, server.Addr())
	there := waiter("there", paused.Addr())
	paused.Replies(lab.Hold)
	locktest.Eventually(t, soon, "it has gone", func() bool {
		return len(server.MustDo(t, "PUBSUB", "CHANNELS", "*:wake:*").([]any)) == 1
	})
	require.True(t, pass(t, holder, "a", "b", true).turn)
	assert.Equal(t, "turn "+there.me, server.MustDo(t, "GET", redisnode.LockKey("n")))
	assert.Equal(t, int64(0), server.MustDo(t, "EXISTS", redisnode.LockKey("n")+":wait"))
	paused.Replies(lab.Pass)

	server.MustDo(t, "DEL", redisnode.LockKey("n"))
	acquire(t, holder, "n", "a", once)
	acquire(t, there, "n", "again", waiting)
	require.NoError(t, there.Close())
	locktest.Eventually(t, soon, "it has gone", func() bool {
		return len(server.MustDo(t, "PUBSUB", "CHANNELS", "*:wake:*").([]any)) == 0
	})
	assert.True(t, pass(t, holder, "a", "b", true).granted, "nobody else is there")
	assert.Equal(t, "", server.MustDo(t, "GET", redisnode.LockKey("n")+":wait"))
}

// A message that is for another client wakes this one a little later, in case the other does not come.
func TestWhoseTurnItIsNotIsWokenAllTheSame(t *testing.T) {
	_, node := setUp(t)
	other := newOnce(t, node.node.Addr)
	acquire(t, node, "n", "a", once)
	woken := subscribe(t, other, "n")
	third := newOnce(t, node.node.Addr)
	its := subscribe(t, third, "n")
	acquire(t, third, "n", "b", waiting)
	require.True(t, pass(t, node, "a", "c", true).turn)
	told(t, its, "it is its turn")
	told(t, woken, "it waits for a poll")
	require.Eventually(t, func() bool {
		return acquire(t, other, "n", "d", once).granted
	}, soon, time.Millisecond)
}

// Each refusal reads the note, so it is bounded.
func TestTheLineOfClientsIsBounded(t *testing.T) {
	server, node := setUp(t)
	acquire(t, node, "n", "a", once)
	server.MustDo(t, "SET", redisnode.LockKey("n")+":wait", strings.Repeat("abcdef01=10;", 200))
	require.False(t, acquire(t, node, "n", "b", waiting).granted)
	assert.Equal(t, int64(2400), server.MustDo(t, "STRLEN", redisnode.LockKey("n")+":wait"))
}

// A refusal is a read, where the note says already that its client waits, and for long enough: a poll is not
// written to disk or sent to replicas.
func TestWhoIsNotedAsWaitingIsNotNotedAgain(t *testing.T) {
	note := redisnode.LockKey("n") + ":wait"
	server, node := setUp(t)
	ask := func(value string) { acquire(t, node, "n", value, waiting) }
	written := func() string { return server.Info(t, "persistence")["rdb_changes_since_last_save"] }
	ask("a")
	ask("b")
	before, noted := written(), server.MustDo(t, "GET", note)
	ask("c")
	assert.Equal(t, before, written())
	assert.Equal(t, noted, server.MustDo(t, "GET", note))
	server.MustDo(t, "PEXPIRE", redisnode.LockKey("n"), 4*ttl.Milliseconds()) // renewed
	ask("d")
	assert.Equal(t, noted, server.MustDo(t, "GET", note))
	assert.Greater(t, server.TTL(t, note), 3*ttl, "it is to outlive the lock")
}

// line is who waits for "n", by the number of the node.
func line(t *testing.T, server *lab.Redis, nodes []*Backend) (line string) {
	t.Helper()
	note, _ := server.MustDo(t, "GET", redisnode.LockKey("n")+":wait").(string)
	for mark := range strings.SplitSeq(note, ";") {
		for i, node := range nodes {
			if strings.HasPrefix(mark, node.me) {
				line += strconv.Itoa(i)
			}
		}
	}
	return line
}

// watched is a Backend that says when a client which waits has done what there is to do: it asks, then it listens, and
// then it asks once more.
type watched struct {
	*Backend
	listens atomic.Bool
	done    chan struct{}
}

func (w *watched) Notify(ctx context.Context, name string, wake func()) (stop func(), err error) {
	stop, err = w.Backend.Notify(ctx, name, wake)
	w.listens.Store(err == nil)
	return stop, err
}

func (w *watched) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	listens := w.listens.Load()
	g, err := w.Backend.Acquire(ctx, req)
	if listens {
		select {
		case w.done <- struct{}{}:
		default:
		}
	}
	return g, err
}

// waiters are three clients, of which the first has the lock and the others wait for it in this order.
func waiters(t *testing.T) (server *lab.Redis, proxy *lab.Proxy, nodes []*Backend, backends []*watched,
	wait func(int) (chan error, func()),
) {
	t.Helper()
	server = lab.StartRedis(t, withOnce)
	proxy = lab.StartProxy(t, server.Addr())
	var clients []*locker.Client
	for i, addr := range []string{server.Addr(), proxy.Addr(), server.Addr()} {
		nodes = append(nodes, newOnce(t, addr))
		backends = append(backends, &watched{Backend: nodes[i], done: make(chan struct{}, 1)})
		clients = append(clients, locktest.Must(locker.New(backends[i], nil)))
		t.Cleanup(func() { assert.NoError(t, clients[i].Close()) })
	}
	acquire(t, nodes[0], "n", "a", once)
	return server, proxy, nodes, backends, func(i int) (chan error, func()) {
		ctx, cancel := context.WithCancel(t.Context())
		before, ends, w := clients[i].Stats().Waiting, make(chan error, 1), backends[i]
		if before == 0 { // otherwise it is not the first of its client, and does not ask
			w.listens.Store(false)
			drain(w.done)
		}
		go func() {
			l, err := clients[i].Lock(ctx, "n")
			if err == nil {
				err = l.Unlock(context.Background())
			}
			ends <- err
		}()
		require.Eventually(t, func() bool { return clients[i].Stats().Waiting > before }, soon, time.Millisecond)
		if before == 0 {
			told(t, w.done, "it does not ask again")
		}
		stands(t, server, nodes, strconv.Itoa(i))
		return ends, cancel
	}
}

// leaves has a client leave the line, which takes no longer than a turn: a busy machine may need several requests.
func leaves(t *testing.T, node *Backend, name string) {
	t.Helper()
	locktest.Eventually(t, soon, "it has left", func() bool {
		_, err := on(node).unline(t.Context(), keys(name, "any"))
		return err == nil
	})
}

func stands(t *testing.T, server *lab.Redis, nodes []*Backend, end string) {
	t.Helper()
	require.Eventually(t, func() bool { return strings.HasSuffix(line(t, server, nodes), end) }, soon, time.Millisecond,
		"the line is to end with %q", end)
}

// The lock is kept for nobody who has gone: a turn of whoever does not come costs all others its time.
func TestWhoGivesUpHasNoTurn(t *testing.T) {
	server, _, nodes, _, wait := waiters(t)
	for range 3 {
		gone, leave := wait(1)
		_, goToo := wait(2)
		leave()
		require.ErrorIs(t, <-gone, driver.ErrHeld)
		require.Eventually(t, func() bool { return line(t, server, nodes) == "2" }, soon, time.Millisecond)
		goToo()
		require.Eventually(t, func() bool { return line(t, server, nodes) == "" }, soon, time.Millisecond)
		assert.True(t, pass(t, nodes[0], "a", "b", true).granted, "a turn of somebody who has gone")
		assert.True(t, pass(t, nodes[0], "b", "a", true).granted)
	}
	// It goes when it is its turn.
	acquire(t, nodes[1], "n", "c", waiting)
	woken := subscribe(t, nodes[2], "n")
	acquire(t, nodes[2], "n", "d", waiting)
	server.MustDo(t, "SET", redisnode.LockKey("n"), "turn "+nodes[1].me, "PX", 60_000)
	leaves(t, nodes[1], "n")
	told(t, woken, "nobody has it")
	assert.True(t, acquire(t, nodes[2], "n", "d", waiting).granted)
	leaves(t, nodes[1], "n") // and is not in line
	assert.Equal(t, "d", owned(t, server, "n"))
}

// A client stays in its place as long as one of its callers waits.
func TestAClientStaysInLineForItsOtherCallers(t *testing.T) {
	server, _, nodes, _, wait := waiters(t)
	first, leave := wait(1)
	second, _ := wait(1)
	_, goToo := wait(2)
	asked := server.Commands(t)
	leave()
	require.ErrorIs(t, <-first, driver.ErrHeld)
	require.Eventually(t, func() bool { return server.Commands(t).Since(asked)["evalsha"] > 0 }, soon,
		time.Millisecond, "the second one asks")
	assert.Equal(t, "12", line(t, server, nodes))
	assert.True(t, pass(t, nodes[0], "a", "b", true).turn)
	require.NoError(t, <-second)
	goToo()
}

// A client that comes again while its request to leave the line is under way waits in it.
func TestWhoComesAgainOvertakesItsLeave(t *testing.T) {
	for _, late := range []bool{false, true} {
		lab.Again(t, func() bool {
			server, proxy, nodes, backends, wait := waiters(t)
			load(t, nodes[1])
			leaves(t, nodes[1], "n") // the server knows the script
			first, leave := wait(1)
			itLeaves, letGo := holdRequest(t, server, proxy, "\r\n"+nodes[1].me+"\r\n")
			left := time.Now()
			leave()
			require.ErrorIs(t, <-first, driver.ErrHeld)
			itLeaves()
			again, _ := wait(1)
			came := time.Now()
			if late {
				told(t, backends[1].done, "the client has done with it, and asks anew")
			}
			letGo()
			inTime := time.Since(left) < turnTime // on a busy machine the client may have done with it
			switch {
			case late:
				assert.Equal(t, "", line(t, server, nodes))
			case inTime:
				stands(t, server, nodes, "1")
			}
			assert.Less(t, time.Since(came), 5*time.Second, "it waits for a poll")
			began := time.Now()
			release(t, nodes[0], "n", "a", false, 0)
			require.NoError(t, <-again)
			assert.Less(t, time.Since(began), 5*time.Second, "it waits for a poll")
			return late || inTime
		})
	}
}
