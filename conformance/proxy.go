package conformance

import "github.com/golockers/locker/internal/lab/faultproxy"

// Proxy starts a TCP proxy to target, a host:port or the path of a unix socket, which need not answer
// yet. The client connects to addr instead, and the Fault breaks what passes through. The proxy ends
// with t: start it before its client, in [Harness].Cut for example, so that the client is closed while
// it can still reach its server. If the proxy cannot listen on the loopback interface, it fails t.
//
// It accepts connections in every mode but Reset. It connects to the server only when requests pass,
// not while they are held or dropped. A connection that has lost bytes to Drop is reset when the mode
// changes, and never continues with a gap. Sent counts bytes.
//
// A client that finds its servers by itself (of a cluster or a sentinel) needs a dialer that starts a
// Proxy for each address.
func Proxy(t T, target string) (addr string, fault Fault) {
	t.Helper()
	p := faultproxy.Start(t, target)
	return p.Addr(), p
}
