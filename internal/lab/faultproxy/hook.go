package faultproxy

import "bytes"

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

// LoseReply forwards the next request that contains pattern and swallows its reply. The client waits in
// vain, on a connection that stays silent for good: nothing else is possible for a stream that has lost
// bytes. Other connections are not affected.
func (p *Proxy) LoseReply(pattern string) (cancel func() bool) {
	return p.OnRequest(pattern, func(l *Link) { l.SetReplies(Drop) })
}

// CutReply forwards the next request that contains pattern, waits until the server has replied, and
// then resets the client's connection in place of the reply: the request was carried out, and the
// client cannot know.
func (p *Proxy) CutReply(pattern string) (cancel func() bool) {
	return p.OnRequest(pattern, func(l *Link) { l.CutOnReply() })
}

// unhook removes a hook. It returns false if that is gone already.
func (p *Proxy) unhook(h *hook) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.hooks {
		if p.hooks[i] == h {
			p.hooks = append(p.hooks[:i:i], p.hooks[i+1:]...)
			return true
		}
	}
	return false
}

// scanner looks for the patterns of hooks in the requests of one connection.
type scanner struct {
	proxy *Proxy
	last  []byte // end of what was sent so far, for patterns split over packets
}

func (p *Proxy) newScanner() *scanner { return &scanner{proxy: p} }

// scan runs the hooks whose pattern ends within data.
func (s *scanner) scan(l *Link, data []byte) {
	const most = 4 << 10 // a pattern longer than this is found only within one packet
	if len(data) == 0 {
		return // the end: not even an empty pattern matches it
	}
	s.proxy.mu.Lock()
	hooks := s.proxy.hooks[:len(s.proxy.hooks):len(s.proxy.hooks)]
	s.proxy.mu.Unlock()
	for _, h := range hooks {
		// No more of the past than a pattern needs that ends in data: it must not match what has gone.
		past := s.last[max(0, len(s.last)-max(0, len(h.pattern)-1)):]
		// Removing it first makes sure that it runs once, whichever connection is first.
		if bytes.Contains(append(past[:len(past):len(past)], data...), h.pattern) && s.proxy.unhook(h) {
			h.fn(l)
		}
	}
	s.last = append(s.last, data...)
	s.last = bytes.Clone(s.last[max(0, len(s.last)-most):])
}
