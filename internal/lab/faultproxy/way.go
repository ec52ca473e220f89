package faultproxy

import (
	"context"
	"net"
	"sync"
)

// Way is all of one client's network: a proxy before each server that it talks to, on which the same
// happens. All methods may be called from any goroutine.
type Way struct {
	t T

	mu                sync.Mutex
	proxies           map[string]*Proxy // by target
	requests, replies Mode
	closed            bool
}

// NewWay returns a way on which everything passes. It ends with the test.
func NewWay(t T) *Way {
	w := &Way{t: t, proxies: map[string]*Proxy{}}
	t.Cleanup(w.close)
	return w
}

// To returns the proxy before a server. It is started when it is asked for first, and the server need not
// be running.
func (w *Way) To(target string) *Proxy {
	w.t.Helper()
	p, err := w.to(target)
	if err != nil {
		w.t.Errorf("%v", err)
		w.t.FailNow()
	}
	return p
}

// Through returns the addresses of the proxies before these servers.
func (w *Way) Through(targets ...string) (addrs []string) {
	w.t.Helper()
	for _, target := range targets {
		addrs = append(addrs, w.To(target).Addr())
	}
	return addrs
}

// Dial connects to a server by its proxy: for clients that find their servers by themselves.
func (w *Way) Dial(ctx context.Context, _, target string) (net.Conn, error) {
	p, err := w.to(target)
	if err != nil {
		return nil, err
	}
	return new(net.Dialer).DialContext(ctx, "tcp", p.Addr())
}

func (w *Way) to(target string) (*Proxy, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return nil, net.ErrClosed
	}
	p := w.proxies[target]
	if p == nil {
		var err error
		if p, err = listen(w.t, target); err != nil {
			return nil, err
		}
		p.SetRequests(w.requests)
		p.SetReplies(w.replies)
		w.proxies[target] = p
	}
	return p, nil
}

// Set changes what happens to all that is sent from now on, in either direction.
func (w *Way) Set(requests, replies Mode) {
	w.set(func() { w.requests, w.replies = requests, replies })
}

// Requests changes what happens to all that the client sends from now on.
func (w *Way) Requests(m Mode) { w.set(func() { w.requests = m }) }

// Replies changes what happens to all that the servers send from now on.
func (w *Way) Replies(m Mode) { w.set(func() { w.replies = m }) }

func (w *Way) set(change func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change()
	for _, p := range w.proxies {
		p.SetRequests(w.requests)
		p.SetReplies(w.replies)
	}
}

// Sent returns how many bytes the client has sent, whether they were delivered or not.
func (w *Way) Sent() (n int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.proxies {
		n += p.Stats().Requests.Sent
	}
	return n
}

func (w *Way) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	for _, p := range w.proxies {
		p.Close()
	}
}
