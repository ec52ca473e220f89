package conformance

import "github.com/golockers/locker/internal/lab/faultproxy"

// Proxy starts a TCP proxy to target, a host:port or the path of a unix socket, which need
// not answer yet. The client connects to addr instead, and the Fault breaks what passes
// there. The proxy ends with t: start it before its client, in [Harness].Cut for example,
// and the client is closed while it still has a way to its server. If the proxy cannot
// listen on the loopback interface, it fails t.
//
// It accepts connections in every mode but Reset. The server sees one when requests pass:
// while they are held or dropped, it is not even connected to. A connection that has lost
// bytes to Drop is reset when the mode changes, and never goes on with a gap. Sent counts
// bytes.
//
// A client that finds its servers by itself (a cluster's, a sentinel's) has to be given a
// dialer that starts a Proxy for each address.
func Proxy(t T, target string) (addr string, fault Fault) {
	t.Helper()
	p := faultproxy.Start(t, target)
	return p.Addr(), p
}
