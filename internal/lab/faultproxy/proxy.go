// Package faultproxy stands between a client and a server, and holds, drops or resets what passes.
//
// It is behind the proxy of package lab and behind that of package conformance, which is for
// backends of others.
package faultproxy

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"
)

// T is what a proxy needs of the test that it belongs to: a part of [testing.TB].
type T interface {
	Helper()
	Errorf(format string, args ...any)
	FailNow()
	Cleanup(f func())
}

// Carry is on the stack of every goroutine of a proxy, by this name. It is how those who look for
// leaks know them: they belong to the test, and not to what is tested.
const Carry = "github.com/golockers/locker/internal/lab/faultproxy.carry"

func carry(f func()) { f() }

// spawn runs f on a goroutine of the proxy.
func (p *Proxy) spawn(f func()) { p.work.Go(func() { carry(f) }) }

// Mode is what a [Proxy] does with the bytes of one direction.
type Mode int

const (
	// Pass delivers bytes as they come.
	Pass Mode = iota
	// Hold accepts bytes, and the end of the stream, and keeps them. They are delivered in order once
	// the mode is Pass again, even if their sender has closed its connection since.
	Hold
	// Drop swallows bytes and the end of the stream, those that were held before included. A connection
	// that has lost bytes so is not continued with a gap in it: when it is to pass again, it is reset.
	Drop
	// Reset resets the receiving end of the direction (RST), and every new connection. What is held
	// for it is lost. A connection that was reset stays so when the mode changes.
	Reset
	// HoldOpen holds on the connections that are open when it is set, and passes on those that are made
	// later: so that what is sent later arrives first.
	HoldOpen
)

// String returns the mode's name in lower case.
func (m Mode) String() string {
	return [...]string{"pass", "hold", "drop", "reset", "hold-open"}[m]
}

// Proxy forwards TCP connections to a server, until it is told to do worse. Requests are what clients
// send, replies what the server sends. Each direction has a [Mode] of its own, for all connections or
// for one ([Link]); both begin with [Pass].
//
// A connection to the proxy is always accepted. The server sees it once requests pass: while they are
// held or dropped, it is not even connected to.
//
// All methods may be called from any goroutine.
type Proxy struct {
	t        T
	network  string
	target   string
	listener net.Listener
	ctx      context.Context // ends with Close; bounds connecting to the server
	cancel   context.CancelFunc
	work     sync.WaitGroup // all goroutines

	mu       sync.Mutex
	requests Mode
	replies  Mode
	delay    time.Duration
	hooks    []*hook
	greeting func(first []byte) // changes the first bytes of each connection, in place; nil: none does
	links    map[*Link]struct{}
	closed   bool
	idle     *time.Duration // after which connections are closed; nil: it was never set
	stats    Stats          // of links that have ended
}

// Start starts a proxy to target, a host:port or the path of a unix socket. It is closed when the
// test ends. The server need not be running.
func Start(t T, target string) *Proxy {
	t.Helper()
	p, err := listen(t, target)
	if err != nil {
		t.Errorf("%v", err)
		t.FailNow()
	}
	t.Cleanup(p.Close)
	return p
}

func listen(t T, target string) (*Proxy, error) {
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("start a proxy to %s: %w", target, err)
	}
	p := &Proxy{t: t, network: "tcp", target: target, listener: l, links: map[*Link]struct{}{}}
	if strings.Contains(target, "/") {
		p.network = "unix"
	}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.spawn(p.accept)
	return p, nil
}

// Addr returns the host:port that clients connect to.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Port returns the port of Addr.
func (p *Proxy) Port() int { return p.listener.Addr().(*net.TCPAddr).Port }

// Retarget sends connections from now on to another server, and resets those there are: what a
// virtual address does when its service moves.
func (p *Proxy) Retarget(target string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = target
	for l := range p.links {
		l.Reset()
	}
}

// Target is where connections lead.
func (p *Proxy) Target() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.target
}

// Rewrite has f change what a client sends first, on connections from now on: as many bytes as they are.
func (p *Proxy) Rewrite(f func(first []byte)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.greeting = f
}

// Set changes both directions. See [Proxy.SetRequests].
func (p *Proxy) Set(m Mode) {
	p.change(func() { p.requests, p.replies = m, m })
}

// SetRequests changes what happens to bytes on their way to the server, on all connections but those
// with a mode of their own ([Link.SetRequests]). What a client sends after SetRequests has returned is
// treated by the new mode; connections to be reset have been.
func (p *Proxy) SetRequests(m Mode) {
	p.change(func() { p.requests = m })
}

// SetReplies changes what happens to bytes on their way to the client. See [Proxy.SetRequests].
func (p *Proxy) SetReplies(m Mode) {
	p.change(func() { p.replies = m })
}

// PassNew lets the connections that are made from now on pass, and leaves those
// that there are as they are, for good: after Set(Drop) they stay silent, as they
// do when a NAT or a load balancer has failed over.
func (p *Proxy) PassNew() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.requests, p.replies = Pass, Pass
	for l := range p.links {
		l.mu.Lock()
		l.requests.own, l.replies.own = true, true
		l.mu.Unlock()
	}
}

// SetDelay makes each byte, in each direction, arrive d later than it would: a round trip takes 2d
// longer. It holds for bytes sent from now on.
func (p *Proxy) SetDelay(d time.Duration) {
	p.change(func() { p.delay = d })
}

// change applies a change of the modes to the connections there are. Holding the mutex all the time
// orders changes among each other and with new connections.
func (p *Proxy) change(apply func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	apply()
	for l := range p.links {
		l.late = l.late && (p.requests == HoldOpen || p.replies == HoldOpen)
		l.follow(p.requests, p.replies, p.delay)
	}
}

// Close closes the listener and all connections, and returns when all goroutines of the proxy have
// ended. What is held is lost. It must not be called from a hook, which is one of those goroutines.
func (p *Proxy) Close() {
	p.mu.Lock()
	p.closed = true
	links := make([]*Link, 0, len(p.links))
	for l := range p.links {
		links = append(links, l)
	}
	p.mu.Unlock()
	p.cancel()
	_ = p.listener.Close()
	for _, l := range links {
		l.close()
	}
	p.work.Wait()
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			if p.ctx.Err() == nil {
				p.t.Errorf("proxy to %s: accept: %v", p.Target(), err)
			}
			return
		}
		p.open(client)
	}
}

// open takes in a new connection.
func (p *Proxy) open(client net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		_ = client.Close()
		return
	}
	p.stats.Accepted++
	if p.requests == Reset || p.replies == Reset {
		p.stats.Refused++
		abort(client)
		return
	}
	l := newLink(p, client)
	l.late = p.requests == HoldOpen || p.replies == HoldOpen
	l.follow(p.requests, p.replies, p.delay)
	p.links[l] = struct{}{}
	l.start()
}

// ended forgets a connection that is over, and keeps its numbers.
func (p *Proxy) ended(l *Link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.links, l)
	p.stats.Packets += l.requests.packets()
	p.stats.Requests.add(l.requests.flow())
	p.stats.Replies.add(l.replies.flow())
}

// abort closes a connection with a reset instead of an orderly end.
func abort(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.Close()
}
