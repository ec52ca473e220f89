package conformance

import "github.com/golockers/locker/internal/lab/faultproxy"

// Proxy is a TCP proxy between a client and a server that holds, drops or
// resets what passes when it is told to. It is a [Fault] of the client whose
// connections all go to it.
//
// It accepts connections in every mode but Reset. The server sees one when
// requests pass: while they are held or dropped, it is not even connected to.
// A connection that has lost bytes to Drop is reset when the mode changes, and
// never goes on with a gap. Its methods may be called from any goroutine.
type Proxy struct{ way *faultproxy.Proxy }

var _ Fault = (*Proxy)(nil)

// StartProxy starts a Proxy to target, a host:port or the path of a unix
// socket, which need not answer yet. It is closed in a Cleanup of t: start it
// before its client, in [Harness].Cut for example, and the client is closed
// while it still has a way to its server. If it cannot listen on the loopback
// interface, it fails t.
//
// A client that finds its servers by itself (a cluster's, a sentinel's) has to
// be given a dialer that starts a Proxy for each address; see [Faults].
func StartProxy(t T, target string) *Proxy {
	t.Helper()
	return &Proxy{faultproxy.Start(t, target)}
}

// Addr returns the host:port that the client has to connect to.
func (p *Proxy) Addr() string { return p.way.Addr() }

// Requests changes what happens to what the client sends, on all connections.
func (p *Proxy) Requests(m Mode) { p.way.SetRequests(m) }

// Replies changes what happens to what the server sends, on all connections.
func (p *Proxy) Replies(m Mode) { p.way.SetReplies(m) }

// Sent returns how many bytes the client has sent.
func (p *Proxy) Sent() int64 { return p.way.Stats().Requests.Sent }

// Faults is the [Fault] of a client that has several connections, each with a
// Fault of its own: one Proxy for each server, for example.
type Faults []Fault

// Requests changes what happens to requests on all of them.
func (all Faults) Requests(m Mode) {
	for _, f := range all {
		f.Requests(m)
	}
}

// Replies changes what happens to replies on all of them.
func (all Faults) Replies(m Mode) {
	for _, f := range all {
		f.Replies(m)
	}
}

// Sent returns what was sent on all of them.
func (all Faults) Sent() (n int64) {
	for _, f := range all {
		n += f.Sent()
	}
	return n
}
