package faultproxy

import (
	"bytes"
	"context"
	"net"
	"slices"
	"time"
)

// Link is one connection through a [Proxy]. A hook gets the one that its request came on. All methods
// may be called from any goroutine, and do nothing once the connection is over.
type Link struct {
	proxy    *Proxy
	door     *door
	client   net.Conn
	requests *pipe
	replies  *pipe

	ctx  context.Context // ends with the link
	stop context.CancelFunc

	// The mutex of the proxy guards what follows, and the pipes.
	server     net.Conn // nil until requests pass
	packets    int64    // from the client
	late       bool     // made while the mode of the proxy was HoldOpen
	cutOnReply bool
	through    int // of the two deliveries; when both are, the link is over
}

// pipe is one direction of a connection: a queue without bounds between the goroutine that reads and
// the one that delivers, so that a sender is never held up, whatever happens to the receiver.
type pipe struct {
	changed chan struct{} // holds one element if something changed since the delivery looked last

	queue    []chunk
	mode     Mode
	own      bool // the mode was set for this connection alone
	gap      bool // something was swallowed
	finished bool // nothing will be delivered any more
	count    Flow
}

// chunk is what one read returned. The one with end is the last.
type chunk struct {
	data []byte
	end  bool
	due  time.Time // not to be delivered earlier
}

func newLink(p *Proxy, d *door, client net.Conn) *Link {
	newPipe := func() *pipe { return &pipe{changed: make(chan struct{}, 1)} }
	l := &Link{proxy: p, door: d, client: client, requests: newPipe(), replies: newPipe()}
	l.ctx, l.stop = context.WithCancel(p.ctx)
	return l
}

// Requests changes what happens to requests on this connection alone, whatever the proxy is set to
// from now on.
func (l *Link) Requests(m Mode) { l.locked(func() { l.setOwn(l.requests, m) }) }

// Replies changes what happens to replies on this connection alone, whatever the proxy is set to
// from now on.
func (l *Link) Replies(m Mode) { l.locked(func() { l.setOwn(l.replies, m) }) }

// Reset resets both ends of this connection.
func (l *Link) Reset() { l.locked(l.reset) }

// CutOnReply resets the client's end as soon as the server sends something on this connection, which
// the client does not get.
func (l *Link) CutOnReply() { l.locked(func() { l.cutOnReply = true }) }

func (l *Link) locked(f func()) {
	l.proxy.mu.Lock()
	defer l.proxy.mu.Unlock()
	f()
}

// What follows is called with the mutex held, up to readRequests.

func (l *Link) setOwn(p *pipe, m Mode) {
	p.own = true
	l.set(p, m)
}

// reset begins with the replies: see follow.
func (l *Link) reset() {
	l.setOwn(l.replies, Reset)
	l.setOwn(l.requests, Reset)
}

// follow takes over the modes of the proxy: that of the replies first, so that a client that is to be
// reset is not told before that there is no server to reply.
func (l *Link) follow() {
	for _, p := range []*pipe{l.replies, l.requests} {
		m := l.proxy.replies
		if p == l.requests {
			m = l.proxy.requests
		}
		if m == HoldOpen && l.late {
			m = Pass
		} else if m == HoldOpen {
			m = Hold
		}
		if !p.own {
			l.set(p, m)
		}
	}
}

func (l *Link) set(p *pipe, m Mode) {
	p.mode = m
	p.swallow()
	gap := p.gap && !p.finished && m != Drop
	if gap || m == Reset && p == l.replies {
		l.resetClient()
	}
	if gap || m == Reset && p == l.requests {
		l.resetServer()
	}
	p.notify()
}

func (l *Link) resetServer() {
	l.requests.finish()
	if l.server != nil {
		abort(l.server)
	} else { // there never will be a server to reply
		l.push(l.replies, nil, true)
	}
}

func (l *Link) resetClient() {
	l.replies.finish()
	abort(l.client)
}

// push appends to a queue. Nothing may follow the end.
func (l *Link) push(p *pipe, data []byte, end bool) {
	p.count.Sent += int64(len(data))
	p.count.Held += int64(len(data))
	p.queue = append(p.queue, chunk{data, end, time.Now().Add(l.proxy.delay)})
	p.swallow()
	if p.finished {
		p.discard()
	}
	p.notify()
}

// close ends the link at once.
func (l *Link) close() {
	l.stop()
	l.requests.finish()
	l.replies.finish()
	_ = l.client.Close()
	if l.server != nil {
		_ = l.server.Close()
	}
}

// finish ends the delivery. What is queued and what still comes is lost.
func (p *pipe) finish() {
	p.finished = true
	p.discard()
	p.notify()
}

func (p *pipe) discard() {
	p.queue = nil
	p.count.Dropped += p.count.Held
	p.count.Held = 0
}

// swallow empties the queue if the mode is Drop.
func (p *pipe) swallow() {
	if p.mode != Drop || len(p.queue) == 0 || p.finished {
		return
	}
	p.gap = true
	p.discard()
}

func (p *pipe) notify() {
	select {
	case p.changed <- struct{}{}:
	default:
	}
}

// readRequests reads what the client sends until its connection is closed.
func (l *Link) readRequests() {
	var past []byte
	read(l.client, func(data []byte, end bool) {
		// Before the bytes can be forwarded, so that a hook decides about them.
		past = l.proxy.scan(l, past, data)
		l.locked(func() {
			if len(data) > 0 {
				l.packets++
			}
			l.proxy.watch(l, false, data, end)
			l.push(l.requests, data, end)
		})
	})
}

func (l *Link) readReplies() {
	read(l.server, func(data []byte, end bool) {
		l.locked(func() {
			if l.cutOnReply {
				l.resetClient()
			}
			l.proxy.watch(l, true, data, end)
			l.push(l.replies, data, end)
		})
	})
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

// deliverRequests connects to the server once requests pass, and delivers them.
func (l *Link) deliverRequests() {
	passes := func() (wait time.Duration) {
		if l.requests.mode != Pass {
			return forever
		}
		return 0
	}
	if l.await(l.requests, passes) {
		target := ""
		l.locked(func() { target = l.door.target })
		server, err := new(net.Dialer).DialContext(l.ctx, network(target), target)
		l.locked(func() {
			if err == nil && !l.requests.finished {
				l.server = server
				l.proxy.spawn(l.readReplies)
				return
			}
			if err == nil {
				abort(server)
			}
			l.resetClient() // before resetServer: see follow
			l.resetServer()
		})
	}
	l.deliver(l.requests, l.server)
}

// deliver writes to dst what the mode lets through, until the end of the stream was delivered, dst takes no
// more, or the pipe is finished. Only deliver takes from the queue, except that it may be emptied.
func (l *Link) deliver(p *pipe, dst net.Conn) {
	for {
		var next chunk
		if !l.await(p, func() time.Duration {
			if p.mode != Pass || len(p.queue) == 0 {
				return forever
			}
			wait := time.Until(p.queue[0].due)
			if wait <= 0 {
				next, p.queue = p.queue[0], p.queue[1:]
				p.count.Held -= int64(len(next.data))
				p.count.Delivered += int64(len(next.data))
			}
			return wait
		}) {
			break
		}
		if _, err := dst.Write(next.data); err != nil {
			break
		}
		if next.end { // the other direction may go on
			if half, ok := dst.(interface{ CloseWrite() error }); ok {
				_ = half.CloseWrite()
			}
			break
		}
	}
	l.locked(func() {
		p.finish()
		if l.through++; l.through == 2 {
			l.close()
			delete(l.proxy.links, l)
			l.proxy.stats.add(l)
		}
	})
}

const forever = time.Hour

// await returns true once ready, which is called with the mutex held, returns 0 or less; until then it
// returns how long to wait if nothing changes. It returns false when the pipe is finished.
func (l *Link) await(p *pipe, ready func() time.Duration) bool {
	for {
		wait, finished := forever, false
		l.locked(func() {
			if finished = p.finished; !finished {
				wait = ready()
			}
		})
		if finished || wait <= 0 {
			return !finished
		}
		select {
		case <-p.changed:
		case <-time.After(wait):
		}
	}
}

// hook is something to do when a request passes.
type hook struct {
	pattern []byte
	fn      func(*Link)
}

// OnRequest runs fn when a client next sends pattern, before those bytes are forwarded: what fn sets
// holds for this request already and for its reply. With a pattern split over several packets, it is
// the packet with its last byte that fn comes before.
//
// It runs once, on whichever connection is first; fn may call OnRequest to be run again. It must return
// soon, since the connection waits for it, and must not call [Proxy.Close] or end the test. Patterns do
// not match what is encrypted.
//
// The function returned removes the hook if it has not run yet, and reports whether it did.
func (p *Proxy) OnRequest(pattern string, fn func(*Link)) (cancel func() bool) {
	h := &hook{pattern: []byte(pattern), fn: fn}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hooks = append(p.hooks, h)
	return func() bool { return p.unhook(h) }
}

// CutReply forwards the next request that contains pattern, waits until the server has replied, and
// then resets the client's connection in place of the reply: the request was carried out, and the
// client cannot know.
func (p *Proxy) CutReply(pattern string) (cancel func() bool) {
	return p.OnRequest(pattern, (*Link).CutOnReply)
}

// unhook removes a hook. It returns false if that is gone already.
func (p *Proxy) unhook(h *hook) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	before := len(p.hooks)
	p.hooks = slices.DeleteFunc(slices.Clone(p.hooks), func(o *hook) bool { return o == h })
	return len(p.hooks) < before
}

// scan runs the hooks whose pattern ends within data. past is what was sent before on this connection, for
// patterns that are split over packets; scan returns what it is for the next data.
func (p *Proxy) scan(l *Link, past, data []byte) []byte {
	const most = 4 << 10 // a pattern longer than this is found only within one packet
	if len(data) == 0 {
		return past // the end: not even an empty pattern matches it
	}
	p.mu.Lock()
	hooks := p.hooks[:len(p.hooks):len(p.hooks)]
	p.mu.Unlock()
	for _, h := range hooks {
		// No more of the past than a pattern needs that ends in data: it must not match what has gone.
		text := slices.Concat(past[max(0, len(past)-max(0, len(h.pattern)-1)):], data)
		// Removing it first makes sure that it runs once, whichever connection is first.
		if bytes.Contains(text, h.pattern) && p.unhook(h) {
			h.fn(l)
		}
	}
	past = append(past, data...)
	return bytes.Clone(past[max(0, len(past)-most):])
}
