package faultproxy_test

import (
	"bufio"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/golockers/locker/internal/lab/faultproxy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const soon = time.Minute

// stories are histories of one proxy: in a line, who does what. Clients are called a, b, c, d; each connects
// when it is named first. What is said of the proxy, of the server and of the store becomes true soon.
//
//	a SET k v       sends, and does not wait
//	a > OK          gets that line, and nothing else before it
//	a silent        gets neither bytes nor an end; reset: a reset; ends: an end of whatever kind
//	a close         hangs up; abort: with a reset
//	a refused       connects, and is reset
//	k = v           the server has stored that
//	all hold        a mode for both directions; requests hold, replies hold: for one
//	on SET ...      when SET passes next, the rest of the line is done; link ...: to its connection alone
//	sent = 13       a number of bytes of requests; back.held: of replies
var stories = map[string]string{
	"bytes pass and are counted": `
		a PING; a > PONG; b SET k 1; b > OK
		sent = 13; delivered = 13; back.sent = 8; accepted = 2; open = 2
		a close; b abort; open = 0; delivered = 13`,
	"a held request arrives after its sender has hung up": `
		a PING; a > PONG; all hold; a SET k 1; a silent
		b SET l 1; c SET m 1; held = 24; a close; b abort; open = 3; k = ; l =
		all pass; k = 1; l = 1; m = 1; c > OK; open = 1`,
	"a held connection is unknown to the server": `
		requests hold; a PING; a silent; served = 0; requests pass; a > PONG; served = 1`,
	"a held reply is that of a request that was carried out": `
		replies hold; a SET k 1; back.held = 3; k = 1; a silent; replies pass; a > OK`,
	"the end of a stream is held": `
		a PING; a > PONG; all hold; a close; b silent; served = 1; all pass; served = 1; open = 1
		b PING; b > PONG; replies hold; server down; b silent; replies pass; b ends`,
	"drop is a black hole, and a stream with a gap is reset": `
		a PING; a > PONG; b PING; b > PONG; all drop; a SET k 1; c SET k 1; a silent; c silent; dropped = 16
		all pass; a reset; c reset; b PING; b > PONG; d GET k; d >`,
	"drop swallows what is held": `
		requests hold; a SET k 1; held = 8; requests drop; dropped = 8; held = 0; requests pass; a reset; k =`,
	"drop of one direction": `
		replies drop; a SET k 1; k = 1; a silent; a close; replies pass; open = 0
		requests drop; b SET k 2; b silent; dropped = 8; b close; requests pass; open = 0; k = 1`,
	"a client is told that there never will be a server": `
		requests hold; a PING; held = 5; requests reset; a ends; open = 0`,
	"a reset is seen as one, by both": `
		a PING; a > PONG; all reset; a reset; b refused; accepted = 2; open = 0; served = 0
		all pass; c PING; c > PONG`,
	"a client is reset and its request arrives later": `
		requests hold; a SET k 1; held = 8; replies reset; a reset; k = ; all pass; k = 1; open = 0`,
	"a dead server resets, and comes back": `
		a PING; a > PONG; server down; a ends; b refused; server up; c PING; c > PONG`,
	"what is open is held, and what comes later passes": `
		a PING; a > PONG; requests hold-open; a SET k a; b GET k; b >; replies pass; b SET k b; b > OK
		a silent; requests pass; a > OK; k = a; requests hold-open; b PING; b silent`,
	"old connections stay silent for good": `
		a PING; a > PONG; all drop; a PING; new; b PING; b > PONG; a silent; all hold; all pass; a silent`,
	"a service moves": `
		a PING; a > PONG; retarget; a reset; b PING; b > PONG`,
	"a hook runs before its request is forwarded, and once": `
		on SET link wait requests hold; b SET k 1; held = 8; k = ; b close; requests pass
		on SET replies hold; a PING; a > PONG; a SET k 1; back.held = 3; replies pass; a > OK; a SET k 2; a > OK`,
	"a hook finds a pattern that is split": `
		on SET_long link requests hold; a+ SET_; delivered = 4; a+ lon; delivered = 7; a g; held = 2; k = `,
	"a hook may end the server": `
		on SET server down; a PING; a > PONG; a SET k 1; a ends; k =`,
	"a hook that is removed does not run": `
		on SET all reset; off true; off false; a SET k 1; a > OK; on SET link; a SET k 2; a > OK; off false`,
	"a reply is lost": `
		a PING; a > PONG; b PING; b > PONG; lose SET; a SET k 1; back.dropped = 3; k = 1; a PING; a silent
		b SET k 2; b > OK; all pass; a silent`,
	"a reply is cut": `
		cut SET; b PING; b > PONG; a SET k 1; a reset; k = 1; back.dropped = 3; back.held = 0; b SET l 2; b > OK`,
	"one connection is reset alone": `
		b PING; b > PONG; on SET link reset; a SET k 1; a reset; b GET k; b >`,
}

func TestStories(t *testing.T) {
	for name, story := range stories {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			newScene(t, "tcp").play(story)
		})
	}
	t.Run("unix socket", func(t *testing.T) {
		newScene(t, "unix").play("a PING; a > PONG; all reset; a reset")
	})
}

// scene is a proxy with a server behind it, which stores words.
type scene struct {
	*testing.T
	*faultproxy.Proxy
	network, addr string
	clients       map[string]*bufio.ReadWriter
	conns         map[string]net.Conn
	off           func() bool // the latest hook

	mu       sync.Mutex
	listener net.Listener
	serving  map[net.Conn]bool
	stored   map[string]string
	work     sync.WaitGroup
}

func newScene(t *testing.T, network string) *scene {
	s := &scene{T: t, network: network, addr: "127.0.0.1:0", clients: map[string]*bufio.ReadWriter{},
		conns: map[string]net.Conn{}, serving: map[net.Conn]bool{}, stored: map[string]string{}}
	if network == "unix" {
		s.addr = filepath.Join(t.TempDir(), "s")
	}
	s.up()
	t.Cleanup(s.down)
	s.Proxy = faultproxy.Start(t, s.addr)
	t.Cleanup(func() {
		for _, c := range s.conns {
			_ = c.Close()
		}
	})
	return s
}

func (s *scene) up() {
	l, err := (&net.ListenConfig{}).Listen(context.Background(), s.network, s.addr)
	require.NoError(s, err)
	s.listener, s.addr = l, l.Addr().String()
	s.work.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s.locked(func() { s.serving[c] = true })
			s.work.Go(func() { s.serve(c) })
		}
	})
}

func (s *scene) down() {
	_ = s.listener.Close()
	s.locked(func() {
		for c := range s.serving {
			_ = c.Close()
		}
	})
	s.work.Wait()
}

func (s *scene) locked(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

func (s *scene) serve(c net.Conn) {
	defer func() {
		_ = c.Close()
		s.locked(func() { delete(s.serving, c) })
	}()
	for lines := bufio.NewScanner(c); lines.Scan(); {
		words, answer := strings.Fields(lines.Text()), "OK"
		s.locked(func() {
			switch words[0] {
			case "PING":
				answer = "PONG"
			case "SET":
				s.stored[words[1]] = words[2]
			case "GET":
				answer = s.stored[words[1]]
			}
		})
		_, _ = fmt.Fprintln(c, answer)
	}
}

func (s *scene) play(story string) {
	for line := range strings.FieldsFuncSeq(story, func(r rune) bool { return r == ';' || r == '\n' }) {
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		s.Logf("%s", line)
		switch c := words[0]; {
		case len(words) > 1 && words[1] == "=":
			want := strings.Join(words[2:], "")
			require.Eventually(s, func() bool { return s.number(c) == want }, soon, time.Millisecond,
				"%s, and is %s", line, s.number(c))
		case len(strings.TrimSuffix(c, "+")) == 1:
			s.client(c, words[1:])
		default:
			s.do(words, nil)
		}
	}
}

// number is what is said of the server or of the proxy.
func (s *scene) number(what string) (is string) {
	stats := s.Stats()
	flow := stats.Requests
	if field, back := strings.CutPrefix(what, "back."); back {
		what, flow = field, stats.Replies
	}
	s.locked(func() {
		if n, known := map[string]int{"accepted": stats.Accepted, "open": stats.Open,
			"served": len(s.serving), "sent": int(flow.Sent), "held": int(flow.Held),
			"delivered": int(flow.Delivered), "dropped": int(flow.Dropped)}[what]; known {
			is = fmt.Sprint(n)
		} else {
			is = s.stored[what]
		}
	})
	return is
}

// do changes something; on a connection alone if l is not nil.
func (s *scene) do(words []string, l *faultproxy.Link) {
	modes := map[string]faultproxy.Mode{"pass": faultproxy.Pass, "hold": faultproxy.Hold,
		"drop": faultproxy.Drop, "reset": faultproxy.Reset, "hold-open": faultproxy.HoldOpen}
	last := words[len(words)-1]
	switch words[0] {
	case "all":
		s.Set(modes[last])
	case "wait":
		time.Sleep(20 * time.Millisecond)
		s.do(words[1:], l)
	case "requests":
		if l != nil {
			l.Requests(modes[last])
		} else {
			s.Requests(modes[last])
		}
	case "replies":
		s.Replies(modes[last])
	case "new":
		s.PassNew()
	case "retarget":
		assert.Equal(s, s.addr, s.Target())
		s.Retarget(s.addr)
	case "reset":
		l.Reset()
	case "server":
		map[string]func(){"up": s.up, "down": s.down}[last]()
	case "lose":
		s.OnRequest(last, func(l *faultproxy.Link) { l.Replies(faultproxy.Drop) })
	case "cut":
		s.CutReply(last)
	case "on":
		s.off = s.OnRequest(words[1], func(l *faultproxy.Link) {
			switch {
			case words[2] != "link":
				s.do(words[2:], nil)
			case len(words) > 3:
				s.do(words[3:], l)
			}
		})
	case "off":
		assert.Equal(s, last, fmt.Sprint(s.off()))
	default:
		s.Fatalf("what is %v?", words)
	}
}

// client has a client do something, or looks at what it sees.
func (s *scene) client(name string, words []string) {
	name, half := strings.CutSuffix(name, "+")
	if s.conns[name] == nil {
		c, err := net.Dial("tcp", s.Addr())
		if words[0] == "refused" && err != nil { // before it looks established
			require.ErrorIs(s, err, syscall.ECONNRESET)
			return
		}
		require.NoError(s, err)
		s.conns[name], s.clients[name] = c, bufio.NewReadWriter(bufio.NewReader(c), bufio.NewWriter(c))
	}
	conn := s.conns[name]
	answer := func(within time.Duration) (string, error) {
		require.NoError(s, conn.SetReadDeadline(time.Now().Add(within)))
		line, err := s.clients[name].ReadString('\n')
		return strings.TrimSpace(line), err
	}
	switch words[0] {
	case ">":
		got, err := answer(soon)
		require.NoError(s, err)
		require.Equal(s, strings.Join(words[1:], ""), got)
	case "silent":
		got, err := answer(50 * time.Millisecond)
		var timeout net.Error
		require.ErrorAs(s, err, &timeout, "got %q", got)
		require.True(s, timeout.Timeout(), "%v", err)
	case "reset", "refused":
		_, err := answer(soon)
		require.ErrorIs(s, err, syscall.ECONNRESET)
	case "ends":
		_, err := answer(soon)
		require.Error(s, err)
		require.NotErrorIs(s, err, syscall.ETIMEDOUT)
	case "abort":
		_ = conn.(*net.TCPConn).SetLinger(0)
		_ = conn.Close()
	case "close":
		_ = conn.Close()
	default:
		text := strings.Join(words, " ")
		if !half {
			text += "\n"
		}
		_, err := io.WriteString(conn, text)
		require.NoError(s, err)
	}
}

func TestAHookRunsOnceHoweverManyAreFirst(t *testing.T) {
	s := newScene(t, "tcp")
	var ran atomic.Int64
	// Two connections meet here, when both have already looked which hooks there are.
	var meet sync.WaitGroup
	meet.Add(2)
	rendezvous := func(*faultproxy.Link) {
		meet.Done()
		meet.Wait()
	}
	s.OnRequest("one", rendezvous)
	s.OnRequest("two", rendezvous)
	s.OnRequest("SET", func(*faultproxy.Link) { ran.Add(1) })
	s.play("a SET k one; b SET k two; a > OK; b > OK")
	assert.EqualValues(t, 1, ran.Load())
}

func TestDelaysBothWays(t *testing.T) {
	s := newScene(t, "tcp")
	const d = 60 * time.Millisecond
	took := func() time.Duration {
		began := time.Now()
		s.play("a PING; a > PONG")
		return time.Since(began)
	}
	s.SetDelay(d)
	assert.GreaterOrEqual(t, took(), 2*d)
	s.SetDelay(0)
	for began := time.Now(); took() >= 2*d; {
		require.Less(t, time.Since(began), soon)
	}
}

func TestOrderIsKeptWhateverTheModesDo(t *testing.T) {
	server, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = server.Close() })
	go func() { // an echo
		c, err := server.Accept()
		if err == nil {
			_, _ = io.Copy(c, c)
			_ = c.Close()
		}
	}()
	p := faultproxy.Start(t, server.Addr().String())
	a, err := net.Dial("tcp", p.Addr())
	require.NoError(t, err)
	t.Cleanup(func() { _ = a.Close() })
	text := make([]byte, 8<<20)
	_, _ = rand.Read(text)

	stop := time.Now().Add(100 * time.Millisecond)
	var work sync.WaitGroup
	work.Go(func() {
		for i := 0; time.Now().Before(stop); i++ {
			time.Sleep(time.Millisecond)
			[]func(faultproxy.Mode){p.Set, p.Requests, p.Replies}[i%3]([]faultproxy.Mode{faultproxy.Hold, faultproxy.Pass}[i%2])
			p.SetDelay([]time.Duration{3 * time.Millisecond, 0}[i%2])
		}
		p.Set(faultproxy.Pass)
	})
	// Nothing is read while all of it is written: a proxy never holds up a sender.
	_, err = a.Write(text)
	require.NoError(t, err)
	require.NoError(t, a.(*net.TCPConn).CloseWrite())
	require.NoError(t, a.SetReadDeadline(time.Now().Add(soon)))
	got, err := io.ReadAll(a) // half a close still gets all of the answer
	require.NoError(t, err)
	work.Wait()
	assert.Equal(t, sha256.Sum256(text), sha256.Sum256(got))
}

func TestCloseWaitsForItsGoroutines(t *testing.T) {
	for _, mode := range []string{"pass", "hold", "drop", "reset"} {
		s := newScene(t, "tcp")
		before := goleak.IgnoreCurrent()
		s.Proxy = faultproxy.Start(t, s.addr)
		s.play("a PING; a > PONG; all " + mode)
		_, _ = io.WriteString(s.conns["a"], "PING\n")
		s.Close()
		s.Close()
		_, err := s.Dial(t.Context(), "tcp", s.addr)
		require.ErrorIs(t, err, net.ErrClosed)
		s.down()
		goleak.VerifyNone(t, before)
	}
	s := newScene(t, "tcp")
	running, proceed, closed := make(chan struct{}), make(chan struct{}), make(chan struct{})
	s.OnRequest("PING", func(*faultproxy.Link) {
		close(running)
		<-proceed
	})
	s.play("a PING")
	<-running
	go func() {
		s.Close()
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

// What is set holds on the ways to servers that are named later, too.
func TestOneProxyOfSeveralServers(t *testing.T) {
	first, second := newScene(t, "tcp"), newScene(t, "tcp")
	p := faultproxy.Start(t)
	p.Requests(faultproxy.Hold)
	addrs := p.Through(first.addr, second.addr)
	assert.Equal(t, addrs, p.Through(first.addr, second.addr), "one address for each server")
	c, err := p.Dial(t.Context(), "tcp", second.addr)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	_, err = io.WriteString(c, "SET k v\n")
	require.NoError(t, err)
	require.Eventually(t, func() bool { return p.Sent() == 8 }, soon, time.Millisecond)
	second.play("k = ")
	p.Requests(faultproxy.Pass)
	second.play("k = v")
}
