package lab

import "github.com/golockers/locker/internal/lab/faultproxy"

// Proxy forwards TCP connections to servers, until it is told to do worse. It is what the suite of package
// conformance calls its Fault.
type Proxy = faultproxy.Proxy

// Link is one connection through a [Proxy], Mode what a proxy does with the bytes of one direction, and Stats counts
// what went through.
type (
	Link  = faultproxy.Link
	Mode  = faultproxy.Mode
	Stats = faultproxy.Stats
)

// Modes, described where they are defined.
const (
	Pass     = faultproxy.Pass
	Hold     = faultproxy.Hold
	Drop     = faultproxy.Drop
	Reset    = faultproxy.Reset
	HoldOpen = faultproxy.HoldOpen
)

// StartProxy starts a proxy to targets, each a host:port or the path of a unix socket. It is closed when the
// test ends, or check, which need not be a [TB]. The servers need not be running.
func StartProxy(t faultproxy.T, targets ...string) *Proxy {
	t.Helper()
	return faultproxy.Start(t, targets...)
}
