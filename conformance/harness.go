package conformance

import (
	"context"
	"time"

	"github.com/golockers/locker"
	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/lab/faultproxy"
)

// Harness tells the suite how to reach one lock service, and how to make it
// fail. New is all that a service without a network needs. The other funcs are
// hooks: each says which claims cannot be proven without it. A check that
// lacks its hook fails, unless Unproven says why it cannot be had.
//
// Names that are given to hooks are those of [driver.Request]: with prefix.
// Hooks are called one at a time, and report their own failures with t.Errorf and
// t.FailNow.
type Harness struct {
	// New returns one more client of the same service: another connection, as
	// another program would have it. The suite closes it.
	New func(t T) driver.Backend

	// TTL is the lease time that most checks use, and the unit of their
	// patience: a check takes between nothing and a few TTLs. 0: one second,
	// or the nearest that the backend can do. Where ten locks show that the service is slow,
	// it is up to four times as long. Checks in which a lock must not
	// end by itself take twenty times as long a TTL (many two hundred times), or MaxTTL if that is
	// less; a backend whose TTL is a session's should allow for some seconds.
	TTL time.Duration

	// Names are further names to try, beside those that trouble many
	// services: such as come near to the names of the backend's own keys.
	Names []string

	// Cut returns one more client of the same service, as New does, whose
	// connection can be broken. Needed where Scope is ScopeNetwork. A backend
	// that bounds its single requests needs room there for a pause of TTL/4.
	//
	// [Proxy], started with t, is all that it takes, and ends by itself.
	// What Cut starts otherwise it has to end with t.Cleanup: what is left of
	// it looks like a goroutine that the backend has left behind.
	Cut func(t T) (driver.Backend, Fault)

	// CutSome returns one more client of the same service, as New does, whose
	// connections to these of its servers alone can be broken: ServerCrashes numbers from 0 up to
	// 2*ServerCrashes. While they are, the service has to answer as if nothing was wrong. It is
	// optional, and for services whose clients ask a quorum of servers themselves.
	CutSome func(t T, servers []int) (driver.Backend, Fault)

	// Pair returns two Backends, each as New returns one, that were made of the same
	// driver's client, pool or connection, which their user has given them and closes
	// after both. nil: backends are made of nothing that is their user's.
	Pair func(t T) (a, b driver.Backend)

	// OffClock returns one more client of the same service, as New does, on a
	// machine whose wall clock is d ahead, or behind if d is negative. A driver
	// that lets a test set its clock is all that it takes. It is hard to have
	// for others, and always optional.
	OffClock func(t T, d time.Duration) driver.Backend

	// Delete removes the lock on name, or all its sharers, from the service behind
	// the backend's back, as an operator or an eviction would; where there is none,
	// it does nothing. Needed where Scope is wider than one process.
	Delete func(t T, name string)

	// Victim takes name in a program of its own, with that TTL, and keeps it
	// until the function that it returns ends that program as a crash would
	// (SIGKILL). Needed where DeadHolder is RecoveryAtOnce and Scope wider
	// than one process; a client that Cut has cut off stands in for it where
	// DeadHolder is RecoveryAfterTTL.
	Victim func(t T, name string, ttl time.Duration) (kill func())

	// Restart kills all servers of the service and starts them again, in the
	// way that RestsOn names, and returns when they answer. The lock that has
	// to survive it is one of twenty TTLs, or of MaxTTL: it has to be over
	// well before that. Needed where SurvivesRestart is claimed.
	Restart func(t T)

	// Failover makes the server that is in charge fail, and returns when
	// another has taken its place, in a time as for Restart. Needed where
	// SurvivesFailover is claimed.
	Failover func(t T)

	// Crash kills n servers, the most important ones first, and returns a
	// function that starts them again. Needed where ServerCrashes is not 0.
	Crash func(t T, n int) (restore func())

	// Hang stops n servers where they stand, the most important ones first: they keep their connections, and
	// answer nobody. It returns a function that lets them go on. It is optional, and is judged as Crash is: locks
	// stay, and clients go on, soon after it has returned.
	Hang func(t T, n int) (resume func())

	// JumpClock steps the wall clocks of all servers by d. The suite takes
	// its steps back. Needed where SurvivesClockJump is claimed and Exclusion
	// rests on servers.
	JumpClock func(t T, d time.Duration)

	// Left lists what the service still has of name that can keep others out:
	// the lock's key, the nodes of waiters, the notes of writers. What stays by design, such as a
	// counter of tokens, does not belong to it. It is always optional; with
	// it, checks look, where they can else only try to get the lock.
	Left func(t T, name string) []string

	// URL and Open say how the same service is opened by URL. Where URL is
	// set, what is opened has to meet the clients of New.
	URL  string
	Open func(ctx context.Context, rawURL string, opts *locker.Options) (*locker.Client, error) // such as OpenWith(Openers)

	// Unproven says, by the names of checks, why a hook that they need cannot
	// be had. Such a check is reported as unproven, and never as passed. It
	// excuses nothing but a missing hook; "many", of a service that is too small for it; and "histories",
	// which are then not played, with all that they alone prove. Or something is left out of them: with "histories-delete"
	// nothing is deleted, with "histories-labels" no label is as long as can be, with "histories-min-hold"
	// nobody asks for MinHold, and with "shared-min-hold" no sharer does. With "many-sharers", the check called many
	// does without sharers.
	Unproven map[string]string

	// Untold says why Inspect or List does not tell something of holders. Its keys are the operation and
	// "label", "time" (Remaining) or "token", such as "Inspect time".
	Untold map[string]string

	// Virtual returns the harness of a new service of the same kind, which lives in memory
	// and can be in a bubble of [testing/synctest]. Histories are then played in virtual
	// time. nil: they are played on the service of New.
	Virtual func(t T) Harness

	// KnownGoroutines names functions whose goroutines outlive a check for
	// good reasons: those of the harness itself. They are no leaks.
	KnownGoroutines []string
}

// Fault breaks one client's connection to its service: all of it, if it is
// made of several. [Proxy] makes one.
type Fault interface {
	// Requests changes what happens to all that the client sends from now on.
	Requests(m Mode)
	// Replies changes what happens to all that the service sends from now on.
	Replies(m Mode)
	// Sent grows with every request that the client has sent, whether it was
	// delivered or not.
	Sent() int64
}

// Mode is what happens to what is sent.
type Mode = faultproxy.Mode

// Modes. After each, Pass makes things well again, for new connections at least.
const (
	// Pass delivers it.
	Pass = faultproxy.Pass
	// Hold keeps it, and delivers it when the mode is Pass again, even if the
	// sender has given up meanwhile.
	Hold = faultproxy.Hold
	// Drop swallows it.
	Drop = faultproxy.Drop
	// Reset breaks connections, new ones too: both ends learn of it.
	Reset = faultproxy.Reset
	// HoldOpen holds on the connections that are open when it is set, and
	// passes on those that are made later. So what a client sends later, to
	// take a request back, arrives before the request. It is asked for in
	// Requests only.
	HoldOpen = faultproxy.HoldOpen
)

// OpenWith is [locker.Open] with these Openers, for Harness.Open.
func OpenWith(openers driver.Openers) func(context.Context, string, *locker.Options) (*locker.Client, error) {
	return func(ctx context.Context, rawURL string, opts *locker.Options) (*locker.Client, error) {
		return locker.Open(ctx, rawURL, opts, openers)
	}
}
