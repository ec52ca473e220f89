// Package faultproxy stands between a client and its servers, and holds, drops or resets what passes.
//
// It is the proxy of package lab and that of package conformance, which is for backends of others.
package faultproxy

import (
	"context"
	"fmt"
	"net"
	"slices"
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

// Proxy is the network between one client and its servers: it listens on an address for each server and
// forwards TCP connections, until it is told to do worse, which then happens on the ways to all of them.
// Requests are what clients send, replies what servers send. Each direction has a [Mode] of its own, for
// all connections or for one ([Link]); both begin with [Pass].
//
// A connection to the proxy is always accepted. The server sees it once requests pass: while they are
// held or dropped, it is not even connected to.
//
// All methods may be called from any goroutine.
type Proxy struct {
	t      T
	ctx    context.Context // ends with Close; bounds connecting to servers
	cancel context.CancelFunc
	work   sync.WaitGroup // all goroutines

	mu       sync.Mutex // guards what follows, and the state of all links
	doors    []*door
	requests Mode
	replies  Mode
	delay    time.Duration
	hooks    []*hook
	watch    func(l *Link, reply bool, data []byte, end bool)
	links    map[*Link]struct{}
	closed   bool
	stats    Stats // of links that have ended
}

// door is where clients come in that want to reach one server.
type door struct {
	net.Listener
	name   string // the server that it was opened for
	target string // and the one that it leads to now
}

// Start starts a proxy to targets: each is a host:port or the path of a unix socket, and need not answer
// yet. It is closed when the test ends.
func Start(t T, targets ...string) *Proxy {
	t.Helper()
	p := &Proxy{t: t, links: map[*Link]struct{}{}, watch: func(*Link, bool, []byte, bool) {}}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	t.Cleanup(p.Close)
	p.Through(targets...)
	return p
}

// Through returns the addresses at which clients reach these targets through the proxy, which may be others
// than those that it was started with.
func (p *Proxy) Through(targets ...string) (addrs []string) {
	p.t.Helper()
	for _, target := range targets {
		addr, err := p.through(target)
		if err != nil {
			p.t.Errorf("%v", err)
			p.t.FailNow()
		}
		addrs = append(addrs, addr)
	}
	return addrs
}

// Dial connects to a server through the proxy: for clients that find their servers by themselves.
func (p *Proxy) Dial(ctx context.Context, _, target string) (net.Conn, error) {
	addr, err := p.through(target)
	if err != nil {
		return nil, err
	}
	return new(net.Dialer).DialContext(ctx, "tcp", addr)
}

func (p *Proxy) through(target string) (addr string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.IndexFunc(p.doors, func(d *door) bool { return d.name == target })
	if p.closed {
		return "", net.ErrClosed
	}
	if i < 0 {
		l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
		if err != nil {
			return "", fmt.Errorf("start a proxy to %s: %w", target, err)
		}
		d := &door{l, target, target}
		i, p.doors = len(p.doors), append(p.doors, d)
		p.spawn(func() { p.accept(d) })
	}
	return p.doors[i].Addr().String(), nil
}

// Addr returns the host:port that clients connect to for the first target.
func (p *Proxy) Addr() string { return p.doors[0].Addr().String() }

// Retarget sends connections from now on to another server than the first target, and resets those there
// are: what a virtual address does when its service moves.
func (p *Proxy) Retarget(target string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.doors[0].target = target
	for l := range p.links {
		l.reset()
	}
}

// Target is where connections to Addr lead.
func (p *Proxy) Target() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.doors[0].target
}

// Watch calls f with what clients send and servers reply, as it is read: before it is delivered, held or dropped.
// f may change it in place. It must return soon, and call no method of the proxy.
func (p *Proxy) Watch(f func(l *Link, reply bool, data []byte, end bool)) {
	p.change(func() { p.watch = f })
}

// Set changes both directions. See [Proxy.Requests].
func (p *Proxy) Set(m Mode) {
	p.change(func() { p.requests, p.replies = m, m })
}

// Requests changes what happens to bytes on their way to the servers, on all connections but those
// with a mode of their own ([Link.Requests]). What a client sends after Requests has returned is
// treated by the new mode; connections to be reset have been.
func (p *Proxy) Requests(m Mode) {
	p.change(func() { p.requests = m })
}

// Replies changes what happens to bytes on their way to the client. See [Proxy.Requests].
func (p *Proxy) Replies(m Mode) {
	p.change(func() { p.replies = m })
}

// SetDelay makes each byte, in each direction, arrive d later than it would: a round trip takes 2d
// longer. It holds for bytes sent from now on.
func (p *Proxy) SetDelay(d time.Duration) {
	p.change(func() { p.delay = d })
}

// PassNew lets the connections that are made from now on pass, and leaves those
// that there are as they are, for good: after Set(Drop) they stay silent, as they
// do when a NAT or a load balancer has failed over.
func (p *Proxy) PassNew() {
	p.change(func() {
		p.requests, p.replies = Pass, Pass
		for l := range p.links {
			l.requests.own, l.replies.own = true, true
		}
	})
}

// change applies a change of the modes to the connections there are. Holding the mutex all the time
// orders changes among each other and with new connections.
func (p *Proxy) change(apply func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	apply()
	for l := range p.links {
		l.late = l.late && p.holdsOpen()
		l.follow()
	}
}

func (p *Proxy) holdsOpen() bool { return p.requests == HoldOpen || p.replies == HoldOpen }

// Close closes the listeners and all connections, and returns when all goroutines of the proxy have
// ended. What is held is lost. It must not be called from a hook, which is one of those goroutines.
func (p *Proxy) Close() {
	p.mu.Lock()
	p.closed = true
	p.cancel()
	for _, d := range p.doors {
		_ = d.Close()
	}
	for l := range p.links {
		l.close()
	}
	p.mu.Unlock()
	p.work.Wait()
}

func (p *Proxy) accept(d *door) {
	for {
		client, err := d.Accept()
		if err != nil {
			if p.ctx.Err() == nil {
				p.t.Errorf("proxy to %s: accept: %v", d.name, err)
			}
			return
		}
		p.open(d, client)
	}
}

// open takes in a new connection.
func (p *Proxy) open(d *door, client net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		_ = client.Close()
		return
	}
	p.stats.Accepted++
	if p.requests == Reset || p.replies == Reset {
		abort(client)
		return
	}
	l := newLink(p, d, client)
	l.late = p.holdsOpen()
	l.follow()
	p.links[l] = struct{}{}
	p.spawn(l.readRequests)
	p.spawn(l.deliverRequests)
	p.spawn(func() { l.deliver(l.replies, client) })
}

// abort closes a connection with a reset instead of an orderly end.
func abort(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.Close()
}

// network is that of a target.
func network(target string) string {
	if strings.Contains(target, "/") {
		return "unix"
	}
	return "tcp"
}

// Stats counts what went through a [Proxy] since it was started.
type Stats struct {
	Accepted int // connections, those reset at once included
	Open     int // connections that are not over; one with held bytes is not, even if its client has hung up

	Packets int64 // how often something was read from clients: about one for each request

	Requests Flow // client to server
	Replies  Flow // server to client
}

// Flow counts the bytes of one direction. Sent = Delivered + Held + Dropped.
type Flow struct {
	Sent      int64 // read from the sender
	Delivered int64 // written to the receiver, or about to be
	Held      int64 // waiting, because of Hold, of a delay, or for their turn
	Dropped   int64 // swallowed, by Drop or because the receiver is gone
}

// Stats returns the numbers as they are now. Wait on them, instead of sleeping, to know that a request
// has reached the proxy.
func (p *Proxy) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.stats
	s.Open = len(p.links)
	for l := range p.links {
		s.add(l)
	}
	return s
}

func (s *Stats) add(l *Link) {
	s.Packets += l.packets
	for sum, f := range map[*Flow]Flow{&s.Requests: l.requests.count, &s.Replies: l.replies.count} {
		sum.Sent += f.Sent
		sum.Delivered += f.Delivered
		sum.Held += f.Held
		sum.Dropped += f.Dropped
	}
}

// Sent returns how many bytes clients have sent, whether they were delivered or not.
func (p *Proxy) Sent() int64 { return p.Stats().Requests.Sent }
