package faultproxy

import (
	"context"
	"net"
	"sync"
	"time"
)

// Link is one connection through a [Proxy]. A hook gets the one that its request came on. All methods
// may be called from any goroutine, and do nothing once the connection is over.
type Link struct {
	proxy    *Proxy
	requests *pipe
	replies  *pipe
	client   net.Conn
	made     time.Time

	ctx  context.Context // ends with the link
	stop context.CancelFunc
	left sync.WaitGroup // the two deliveries: when both are through, the link is over

	mu          sync.Mutex
	server      net.Conn // nil until requests pass
	serverGone  bool     // reset, before or after it was connected to
	serverEnded bool     // it has hung up
	clientEnded bool
	late        bool // made while the mode of the proxy was HoldOpen; guarded by the proxy's mutex
	cutOnReply  bool
	closedIdle  bool // guarded by the proxy's mutex
}

func newLink(p *Proxy, client net.Conn) *Link {
	l := &Link{proxy: p, client: client, made: time.Now(), requests: newPipe(), replies: newPipe()}
	l.ctx, l.stop = context.WithCancel(p.ctx)
	return l
}

// start starts the goroutines of the link. Those that read end when their connection is closed, which
// finish does after those that deliver have ended.
func (l *Link) start() {
	p := l.proxy
	l.left.Add(2)
	p.spawn(func() { l.readRequests() })
	p.spawn(func() {
		defer l.left.Done()
		l.deliverRequests()
	})
	p.spawn(func() {
		defer l.left.Done()
		l.replies.deliver(l.ctx, l.client)
	})
	p.spawn(func() {
		l.left.Wait()
		l.close()
		p.ended(l)
	})
}

// SetRequests changes what happens to requests on this connection alone, whatever the proxy is set to
// from now on.
func (l *Link) SetRequests(m Mode) { l.setOwn(l.requests, m) }

// SetReplies changes what happens to replies on this connection alone, whatever the proxy is set to
// from now on.
func (l *Link) SetReplies(m Mode) { l.setOwn(l.replies, m) }

func (l *Link) setOwn(p *pipe, m Mode) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p.own = true
	l.set(p, m)
}

// Reset resets both ends of this connection.
func (l *Link) Reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.requests.own, l.replies.own = true, true
	l.set(l.replies, Reset)
	l.set(l.requests, Reset)
}

// CutOnReply resets the client's end as soon as the server sends something on this connection, which
// the client does not get.
func (l *Link) CutOnReply() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cutOnReply = true
}

// mode is what a mode of the proxy means for this connection.
func (l *Link) mode(m Mode) Mode {
	switch {
	case m != HoldOpen:
		return m
	case l.late:
		return Pass
	}
	return Hold
}

// follow takes over the modes of the proxy: that of the replies first, so that a client that is to be
// reset is not told before that there is no server to reply.
func (l *Link) follow(requests, replies Mode, delay time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, p := range []*pipe{l.replies, l.requests} {
		p.setDelay(delay)
		if !p.own {
			l.set(p, l.mode([]Mode{replies, requests}[i]))
		}
	}
}

// set is called with the mutex held.
func (l *Link) set(p *pipe, m Mode) {
	switch {
	case m == Reset && p == l.requests:
		l.resetServer()
	case m == Reset:
		l.resetClient()
	}
	if gap := p.setMode(m); gap {
		l.resetBoth()
	}
	l.settle()
}

func (l *Link) resetServer() {
	l.requests.finish()
	l.serverGone = true
	if l.server != nil {
		abort(l.server)
	} else {
		// There never will be a server to reply.
		l.replies.push(nil, true)
	}
}

func (l *Link) resetClient() {
	l.replies.finish()
	abort(l.client)
}

// resetBoth begins with the client: see follow.
func (l *Link) resetBoth() {
	l.resetClient()
	l.resetServer()
}

// settle gives up a direction whose end was swallowed once its receiver has hung up as well: nobody is
// left to be told, now or later. It is called with the mutex held.
func (l *Link) settle() {
	if l.requests.swallowedEnd() && (l.serverEnded || l.server == nil) {
		l.requests.finish()
		if l.server == nil {
			l.replies.finish()
		}
	}
	if l.replies.swallowedEnd() && l.clientEnded {
		l.replies.finish()
	}
}

// close ends the link at once.
func (l *Link) close() {
	l.stop()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.requests.finish()
	l.replies.finish()
	_ = l.client.Close()
	if l.server != nil {
		_ = l.server.Close()
	}
}

func (l *Link) readRequests() {
	seen := l.proxy.newScanner()
	l.proxy.mu.Lock()
	greeting := l.proxy.greeting
	l.proxy.mu.Unlock()
	read(l.client, func(data []byte, end bool) {
		if greeting != nil && len(data) > 0 {
			greeting(data)
			greeting = nil
		}
		// Before the bytes can be forwarded, so that a hook decides about them.
		seen.scan(l, data)
		l.mu.Lock()
		defer l.mu.Unlock()
		l.clientEnded = end
		l.requests.push(data, end)
		l.settle()
	})
}

func (l *Link) readReplies(server net.Conn) {
	read(server, func(data []byte, end bool) {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.cutOnReply {
			l.resetClient()
		}
		l.serverEnded = end
		l.replies.push(data, end)
		l.settle()
	})
}

// deliverRequests connects to the server once requests pass, and delivers them.
func (l *Link) deliverRequests() {
	if !l.requests.waitForPass(l.ctx) {
		return
	}
	var d net.Dialer
	server, err := d.DialContext(l.ctx, l.proxy.network, l.proxy.Target())
	l.mu.Lock()
	if err != nil || l.serverGone {
		if err == nil {
			abort(server)
		}
		l.resetBoth()
		l.mu.Unlock()
		return
	}
	l.server = server
	l.mu.Unlock()
	l.proxy.spawn(func() { l.readReplies(server) })
	l.requests.deliver(l.ctx, server)
}

// read passes on what comes from c until it ends, in whatever way.
func read(c net.Conn, push func(data []byte, end bool)) {
	for {
		data := make([]byte, 32<<10)
		n, err := c.Read(data)
		push(data[:n], err != nil)
		if err != nil {
			return
		}
	}
}
