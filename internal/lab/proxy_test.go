package lab_test

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"io"
	"net"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/golockers/locker/internal/lab"
)

const soon = 5 * time.Second

func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	require.Eventually(t, condition, soon, 2*time.Millisecond, what)
}

// wire is a bare connection: what a test sends is what goes over it, and nothing tries again.
type wire struct {
	net.Conn
	t *testing.T
}

func dial(t *testing.T, p *lab.Proxy) wire {
	t.Helper()
	c, err := connect(p.Addr())
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return wire{c, t}
}

func (w wire) send(text string) {
	w.t.Helper()
	_, err := w.Write([]byte(text))
	require.NoError(w.t, err)
}

// answer returns what comes next, and the error that ends the stream.
func (w wire) answer(within time.Duration) (string, error) {
	w.t.Helper()
	require.NoError(w.t, w.SetReadDeadline(time.Now().Add(within)))
	b := make([]byte, 1024)
	n, err := w.Read(b)
	return string(b[:n]), err
}

func (w wire) expect(want string) {
	w.t.Helper()
	got, err := w.answer(soon)
	require.NoError(w.t, err)
	require.Equal(w.t, want, got)
}

// silent asserts that nothing comes, neither bytes nor an end.
func (w wire) silent() {
	w.t.Helper()
	got, err := w.answer(50 * time.Millisecond)
	var timeout net.Error
	require.ErrorAs(w.t, err, &timeout, "got %q", got)
	require.True(w.t, timeout.Timeout(), "%v", err)
}

func (w wire) isReset() {
	w.t.Helper()
	_, err := w.answer(soon)
	require.ErrorIs(w.t, err, syscall.ECONNRESET)
}

// refuses asserts that a new connection is reset, before or after it looks established.
func refuses(t *testing.T, p *lab.Proxy) {
	t.Helper()
	c, err := connect(p.Addr())
	if err == nil {
		defer func() { _ = c.Close() }()
		_, err = wire{c, t}.answer(soon)
	}
	require.ErrorIs(t, err, syscall.ECONNRESET)
}

func proxied(t *testing.T) (*lab.Redis, *lab.Proxy) {
	t.Helper()
	r := lab.StartRedis(t)
	return r, lab.StartProxy(t, r.Addr())
}

func TestProxyPassesAndCounts(t *testing.T) {
	_, p := proxied(t)
	a, b := dial(t, p), dial(t, p)
	a.send("PING\r\n")
	a.expect("+PONG\r\n")
	b.send("ECHO x\r\n")
	b.expect("$1\r\nx\r\n")
	s := p.Stats()
	assert.Equal(t, lab.Flow{Sent: 14, Delivered: 14}, s.Requests)
	assert.Equal(t, lab.Flow{Sent: 14, Delivered: 14}, s.Replies)
	assert.Equal(t, 2, s.Accepted)
	assert.Equal(t, 2, s.Open)
	_ = a.Close()
	_ = b.Close()
	eventually(t, "closed connections are forgotten", func() bool { return p.Stats().Open == 0 })
	assert.Equal(t, int64(14), p.Stats().Requests.Delivered, "their numbers are kept")
}

func TestProxyToAUnixSocket(t *testing.T) {
	r := lab.StartRedis(t, lab.WithSocket())
	p := lab.StartProxy(t, r.Socket())
	a := dial(t, p)
	a.send("PING\r\n")
	a.expect("+PONG\r\n")
	p.Set(lab.Reset)
	a.isReset()
}

func TestProxyHeldRequestArrivesAfterItsSenderHungUp(t *testing.T) {
	for name, hangUp := range map[string]func(w wire){
		"closed": func(w wire) { _ = w.Close() },
		"reset":  func(w wire) { _ = w.Conn.(*net.TCPConn).SetLinger(0); _ = w.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			r, p := proxied(t)
			a := dial(t, p)
			a.send("PING\r\n")
			a.expect("+PONG\r\n")
			p.Set(lab.Hold)
			a.send("SET ghost 1\r\n")
			a.silent()
			// A connection made during the partition as well.
			b := dial(t, p)
			b.send("SET other 1\r\n")
			eventually(t, "held", func() bool { return p.Stats().Requests.Held == 26 })
			hangUp(a)
			hangUp(b)
			assert.Equal(t, 2, p.Stats().Open)
			assert.Nil(t, r.MustDo(t, "GET", "ghost"))
			assert.Nil(t, r.MustDo(t, "GET", "other"))
			p.Set(lab.Pass)
			eventually(t, "the ghost arrives", func() bool {
				return r.MustDo(t, "GET", "ghost") == "1" && r.MustDo(t, "GET", "other") == "1"
			})
			eventually(t, "and its connection ends", func() bool { return p.Stats().Open == 0 })
		})
	}
}

func TestProxyHeldConnectionIsUnknownToTheServer(t *testing.T) {
	r, p := proxied(t)
	connections := func() int {
		n, err := strconv.Atoi(r.Info(t, "stats")["total_connections_received"])
		require.NoError(t, err)
		return n
	}
	before := connections()
	p.SetRequests(lab.Hold)
	a := dial(t, p)
	a.send("PING\r\n")
	a.silent()
	assert.Equal(t, before+1, connections(), "only the one that asks")
	p.SetRequests(lab.Pass)
	a.expect("+PONG\r\n")
}

func TestProxyHeldReplyIsOfARequestCarriedOut(t *testing.T) {
	r, p := proxied(t)
	a := dial(t, p)
	p.SetReplies(lab.Hold)
	a.send("INCR n\r\n")
	eventually(t, "held", func() bool { return p.Stats().Replies.Held == 4 })
	assert.Equal(t, "1", r.MustDo(t, "GET", "n"))
	a.silent()
	p.SetReplies(lab.Pass)
	a.expect(":1\r\n")
}

func TestProxyHoldsTheEndOfTheStream(t *testing.T) {
	r, p := proxied(t)
	a := dial(t, p)
	a.send("CLIENT SETNAME me\r\n")
	a.expect("+OK\r\n")
	p.Set(lab.Hold)
	_ = a.Close()
	b := dial(t, p)
	b.silent() // gives the end time to get through, if it could
	assert.Contains(t, r.MustDo(t, "CLIENT", "LIST"), "name=me",
		"the server must not learn that its client is gone")
	p.Set(lab.Pass)
	eventually(t, "now it does", func() bool {
		list, _ := r.MustDo(t, "CLIENT", "LIST").(string)
		return !bytes.Contains([]byte(list), []byte("name=me"))
	})

	p.SetReplies(lab.Hold)
	r.Kill()
	b.silent()
	p.SetReplies(lab.Pass)
	_, err := b.answer(soon)
	assert.Error(t, err)
	assert.NotErrorIs(t, err, syscall.ETIMEDOUT)
}

func TestProxyDropIsABlackHole(t *testing.T) {
	r, p := proxied(t)
	a, idle := dial(t, p), dial(t, p)
	for _, w := range []wire{a, idle} {
		w.send("PING\r\n")
		w.expect("+PONG\r\n")
	}
	p.Set(lab.Drop)
	a.send("SET lost 1\r\n")
	b := dial(t, p) // accepted
	b.send("SET lost 1\r\n")
	a.silent()
	b.silent()
	eventually(t, "swallowed", func() bool { return p.Stats().Requests.Dropped == 24 })

	p.Set(lab.Pass)
	a.isReset() // rather than going on with bytes missing
	b.isReset()
	idle.send("PING\r\n") // which has lost nothing
	idle.expect("+PONG\r\n")
	c := dial(t, p)
	c.send("EXISTS lost\r\n")
	c.expect(":0\r\n")
	assert.Nil(t, r.MustDo(t, "GET", "lost"))
}

func TestProxyDropSwallowsWhatIsHeld(t *testing.T) {
	r, p := proxied(t)
	p.SetRequests(lab.Hold)
	a := dial(t, p)
	a.send("SET lost 1\r\n")
	eventually(t, "held", func() bool { return p.Stats().Requests.Held == 12 })
	p.SetRequests(lab.Drop)
	assert.Equal(t, lab.Flow{Sent: 12, Dropped: 12}, p.Stats().Requests)
	p.SetRequests(lab.Pass)
	a.isReset()
	assert.Nil(t, r.MustDo(t, "GET", "lost"))
}

func TestProxyDropOfOneDirection(t *testing.T) {
	r, p := proxied(t)
	a := dial(t, p)
	p.SetReplies(lab.Drop)
	a.send("SET k 1\r\n")
	eventually(t, "requests pass", func() bool { return r.MustDo(t, "GET", "k") == "1" })
	a.silent()
	_ = a.Close()
	eventually(t, "a connection that both have left is over", func() bool { return p.Stats().Open == 0 })
}

func TestProxyResetIsSeenAsAReset(t *testing.T) {
	r, p := proxied(t)
	a := dial(t, p)
	a.send("CLIENT SETNAME me\r\n")
	a.expect("+OK\r\n")
	p.Set(lab.Reset)
	a.isReset()
	refuses(t, p)
	assert.Equal(t, 1, p.Stats().Refused)
	eventually(t, "the server's end is gone as well", func() bool { return p.Stats().Open == 0 })
	eventually(t, "and the server knows", func() bool {
		list, _ := r.MustDo(t, "CLIENT", "LIST").(string)
		return !bytes.Contains([]byte(list), []byte("name=me"))
	})
	p.Set(lab.Pass)
	b := dial(t, p)
	b.send("PING\r\n")
	b.expect("+PONG\r\n")
}

func TestProxyClientIsResetAndItsRequestArrivesLater(t *testing.T) {
	r, p := proxied(t)
	a := dial(t, p)
	p.SetRequests(lab.Hold)
	a.send("SET ghost 1\r\n")
	eventually(t, "held", func() bool { return p.Stats().Requests.Held == 13 })
	p.SetReplies(lab.Reset)
	a.isReset()
	assert.Nil(t, r.MustDo(t, "GET", "ghost"))
	p.Set(lab.Pass)
	eventually(t, "the ghost arrives", func() bool { return r.MustDo(t, "GET", "ghost") == "1" })
}

func TestProxyDelaysBothWays(t *testing.T) {
	_, p := proxied(t)
	a := dial(t, p)
	const d = 60 * time.Millisecond
	p.SetDelay(d)
	begin := time.Now()
	a.send("PING\r\n")
	a.expect("+PONG\r\n")
	assert.GreaterOrEqual(t, time.Since(begin), 2*d)
	p.SetDelay(0)
	begin = time.Now()
	a.send("PING\r\n")
	a.expect("+PONG\r\n")
	assert.Less(t, time.Since(begin), 2*d)
}

func TestProxyKeepsOrderWhateverTheModesDo(t *testing.T) {
	server, err := listen("127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = server.Close() })
	go func() { // an echo
		c, err := server.Accept()
		if err == nil {
			_, _ = io.Copy(c, c)
			_ = c.Close()
		}
	}()
	p := lab.StartProxy(t, server.Addr().String())
	a := dial(t, p)
	text := make([]byte, 8<<20)
	_, _ = rand.Read(text)

	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for i := 0; ; i++ {
			select {
			case <-stop:
				p.Set(lab.Pass)
				return
			case <-time.After(time.Millisecond):
			}
			[]func(lab.Mode){p.Set, p.SetRequests, p.SetReplies}[i%3]([]lab.Mode{lab.Hold, lab.Pass}[i%2])
			p.SetDelay([]time.Duration{3 * time.Millisecond, 0}[i%2])
		}
	}()
	// Nothing is read while all of it is written: a proxy never holds up a sender.
	_, err = a.Write(text)
	require.NoError(t, err)
	require.NoError(t, a.Conn.(*net.TCPConn).CloseWrite())
	time.AfterFunc(100*time.Millisecond, func() { close(stop) })
	require.NoError(t, a.SetReadDeadline(time.Now().Add(20*time.Second)))
	got, err := io.ReadAll(a) // half a close still gets all of the answer
	require.NoError(t, err)
	<-stopped
	assert.Equal(t, sha256.Sum256(text), sha256.Sum256(got))
}

func TestProxyOfADeadServerResetsAndRecovers(t *testing.T) {
	r, p := proxied(t)
	a := dial(t, p)
	a.send("PING\r\n")
	a.expect("+PONG\r\n")
	r.Kill()
	_, err := a.answer(soon)
	require.Error(t, err)
	refuses(t, p)
	r.Restart(t)
	b := dial(t, p)
	b.send("PING\r\n")
	b.expect("+PONG\r\n")
}

func TestProxyConnectsToAPausedServer(t *testing.T) {
	r, p := proxied(t)
	r.Pause()
	a := dial(t, p)
	a.send("SET k 1\r\n")
	a.silent()
	_ = a.Close()
	r.Resume()
	eventually(t, "what was sent to a paused server is carried out",
		func() bool { return r.MustDo(t, "GET", "k") == "1" })
}

func TestProxyCloseLeavesNoGoroutine(t *testing.T) {
	r := lab.StartRedis(t)
	before := goleak.IgnoreCurrent()
	for _, mode := range []lab.Mode{lab.Pass, lab.Hold, lab.Drop, lab.Reset} {
		p := lab.StartProxy(t, r.Addr())
		a := dial(t, p)
		a.send("PING\r\n")
		a.expect("+PONG\r\n")
		p.Set(mode)
		_, _ = a.Write([]byte("PING\r\n"))
		b, err := connect(p.Addr()) // fails if it is reset at once
		if err == nil {
			_, _ = b.Write([]byte("PING\r\n"))
			t.Cleanup(func() { _ = b.Close() })
		}
		p.Close()
		p.Close()
		_, err = connect(p.Addr())
		require.Error(t, err)
		goleak.VerifyNone(t, before)
	}
}

func TestProxyCloseWaitsForItsGoroutines(t *testing.T) {
	p := lab.StartProxy(t, "127.0.0.1:1")
	p.SetRequests(lab.Hold)
	a := dial(t, p)
	running, proceed, closed := make(chan struct{}), make(chan struct{}), make(chan struct{})
	p.OnRequest("x", func(*lab.Link) {
		close(running)
		<-proceed
	})
	a.send("x")
	<-running
	go func() {
		p.Close()
		close(closed)
	}()
	select {
	case <-closed:
		t.Error("a hook was still running")
	case <-time.After(50 * time.Millisecond):
	}
	close(proceed)
	<-closed
}

func TestProxyHoldsOpenConnectionsAndPassesNewOnes(t *testing.T) {
	r, p := proxied(t)
	old := dial(t, p)
	old.send("PING\r\n")
	old.expect("+PONG\r\n")
	p.SetRequests(lab.HoldOpen)
	old.send("SET k old\r\n")
	late := dial(t, p)
	late.send("GET k\r\n")
	late.expect("$-1\r\n")
	p.SetReplies(lab.Pass) // any other change leaves them as they are
	late.send("SET k late\r\n")
	late.expect("+OK\r\n")
	old.silent()
	p.SetRequests(lab.Pass)
	old.expect("+OK\r\n")
	assert.Equal(t, "old", r.MustDo(t, "GET", "k"))
	p.SetRequests(lab.HoldOpen)
	late.send("PING\r\n")
	late.silent()
}

// What is idle is closed at both ends, what is used is not; each that was closed is counted once.
func TestProxyClosesWhatIsIdle(t *testing.T) {
	r, p := proxied(t)
	used, idle := dial(t, p), dial(t, p)
	for _, w := range []wire{used, idle} {
		w.send("PING\r\n")
		w.expect("+PONG\r\n")
	}
	clients := func() string { return r.Info(t, "clients")["connected_clients"] }
	both := clients()
	p.SetIdle(200 * time.Millisecond)
	eventually(t, "the idle one is closed", func() bool {
		used.send("PING\r\n")
		used.expect("+PONG\r\n")
		return p.Stats().Idle == 1
	})
	_, err := idle.answer(soon)
	require.ErrorIs(t, err, io.EOF)
	eventually(t, "the server's end is closed, too", func() bool { return clients() != both })
	p.SetIdle(0)
	used.send("PING\r\n")
	used.expect("+PONG\r\n")
	assert.Equal(t, 1, p.Stats().Idle)
}

// What a way is set to holds for proxies that are started later, too, and nothing is connected when it is over.
func TestWay(t *testing.T) {
	r := lab.StartRedis(t)
	var w *lab.Way
	t.Run("open", func(t *testing.T) {
		w = lab.NewWay(t)
		w.Set(lab.Hold, lab.Pass)
		c, err := w.Dial(t.Context(), "tcp", r.Addr())
		require.NoError(t, err)
		defer c.Close()
		held := wire{c, t}
		held.send("PING\r\n")
		held.silent()
		eventually(t, "it is counted", func() bool { return w.Sent() == int64(len("PING\r\n")) })
		assert.Equal(t, w.To(r.Addr()).Addr(), w.Through(r.Addr())[0], "one for each server")
		w.Requests(lab.Pass)
		held.expect("+PONG\r\n")
		w.Replies(lab.Drop)
		held.send("PING\r\n")
		held.silent()
	})
	_, err := w.Dial(t.Context(), "tcp", r.Addr())
	require.ErrorIs(t, err, net.ErrClosed)
}
