package lab

import (
	"github.com/golockers/locker/internal/lab/faultproxy"
)

// Proxy forwards TCP connections to a server, until it is told to do worse.
type Proxy = faultproxy.Proxy

// Link is one connection through a [Proxy].
type Link = faultproxy.Link

// Way is all of one client's network: what the suite of package conformance calls its Fault.
type Way = faultproxy.Way

// NewWay returns a way on which everything passes. It ends with the test, or check, which need not be a [TB].
func NewWay(t faultproxy.T) *Way { return faultproxy.NewWay(t) }

// Mode is what a [Proxy] does with the bytes of one direction.
type Mode = faultproxy.Mode

// Modes, described where they are defined.
const (
	Pass     = faultproxy.Pass
	Hold     = faultproxy.Hold
	Drop     = faultproxy.Drop
	Reset    = faultproxy.Reset
	HoldOpen = faultproxy.HoldOpen
)

// Stats counts what went through a [Proxy], Flow what went in one direction.
type (
	Stats = faultproxy.Stats
	Flow  = faultproxy.Flow
)

// StartProxy starts a proxy to target, a host:port or the path of a unix socket. It is closed when the
// test ends. The server need not be running.
func StartProxy(t TB, target string) *Proxy {
	t.Helper()
	return faultproxy.Start(t, target)
}
