package conformance

import (
	"context"
	"time"

	"github.com/golockers/locker"
	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/lab/faultproxy"
)

// Harness tells the suite how to reach one lock service, and how to make it fail. A service without a
// network needs only New. The other funcs are hooks: each says which claims cannot be proven without
// it. A check that lacks its hook fails, unless Unproven says why the hook is not possible.
//
// Names passed to hooks include the prefix, as in [driver.Request]. Hooks are called one at a time, and
// report their own failures with t.Errorf and t.FailNow.
type Harness struct {
	// New returns a new client of the same service, with its own connection, as another program would
	// have. The suite closes it.
	New func(t T) driver.Backend

	// TTL is the lease time that most checks use, and their unit of time: a check takes at most a few
	// TTLs. 0: one second, or the nearest that the backend supports. If ten trial locks show that the
	// service is slow, it is up to four times as long. Checks whose lock must not expire use a TTL
	// twenty times as long (many, two hundred times), or MaxTTL if that is less; a backend whose TTL is
	// a session's should allow some seconds.
	TTL time.Duration

	// Names are further names to try, besides those that trouble many services, such as names similar
	// to the backend's own keys.
	Names []string

	// Cut returns a new client of the same service, as New does, whose connection can be broken.
	// Required if Scope is ScopeNetwork. The backend's bound of a single request must leave room for a
	// pause of TTL/4.
	//
	// A [Proxy], started with t, is all it takes, and ends by itself. Anything else that Cut starts
	// must be ended with t.Cleanup: otherwise it looks like a goroutine that the backend has left
	// behind.
	Cut func(t T) (driver.Backend, Fault)

	// CutSome returns a new client of the same service, as New does, whose connections to only these of
	// its servers can be broken: ServerCrashes numbers from 0 to 2*ServerCrashes. While they are
	// broken, the service must answer as if nothing were wrong. It is optional, and for services whose
	// clients ask a quorum of servers themselves.
	CutSome func(t T, servers []int) (driver.Backend, Fault)

	// Pair returns two Backends, each as from New, made from one driver's client, pool or connection
	// that their user owns and closes after both. nil: backends are not made from anything that their
	// user owns.
	Pair func(t T) (a, b driver.Backend)

	// OffClock returns a new client of the same service, as New does, on a machine whose wall clock is
	// d ahead, or behind if d is negative. It takes only a driver whose clock a test can set; for other
	// drivers it is hard. It is always optional.
	OffClock func(t T, d time.Duration) driver.Backend

	// Delete removes the lock on name, or all its sharers, from the service behind the backend's back,
	// as an operator or an eviction would; if there is none, it does nothing. Required if Scope is
	// wider than one process.
	Delete func(t T, name string)

	// Victim locks name in a program of its own, with that TTL, and holds it until the returned
	// function ends that program as a crash would (SIGKILL). Required if DeadHolder is RecoveryAtOnce
	// and Scope is wider than one process; if DeadHolder is RecoveryAfterTTL, a client that Cut has cut
	// off replaces it.
	Victim func(t T, name string, ttl time.Duration) (kill func())

	// Restart kills all servers of the service and starts them again, as RestsOn describes, and returns
	// when they answer. The lock that must survive it lasts twenty TTLs, or MaxTTL: Restart must be
	// done well before that. Required if SurvivesRestart is claimed.
	Restart func(t T)

	// Failover makes the server in charge fail, and returns when another has replaced it, as quickly as
	// Restart. Required if SurvivesFailover is claimed.
	Failover func(t T)

	// Crash kills n servers, the most important ones first, and returns a function that starts them
	// again. Required if ServerCrashes is not 0.
	Crash func(t T, n int) (restore func())

	// Hang pauses n servers, the most important ones first: they keep their connections but do not
	// answer. It returns a function that resumes them. It is optional, and judged like Crash: locks
	// stay, and clients continue soon after it has returned.
	Hang func(t T, n int) (resume func())

	// JumpClock steps the wall clocks of all servers by d. The suite undoes its steps. Required if
	// SurvivesClockJump is claimed and Exclusion rests on servers.
	JumpClock func(t T, d time.Duration)

	// Left lists what the service still has for name that can keep others out: the lock's key, the
	// nodes of waiters, the notes of writers. It leaves out what stays by design, such as a token
	// counter. It is always optional; without it, checks can only try to get the lock.
	Left func(t T, name string) []string

	// URL and Open say how to open the same service by URL. If URL is set, the opened client must
	// compete with the clients of New.
	URL  string
	Open func(ctx context.Context, rawURL string, opts *locker.Options) (*locker.Client, error) // such as OpenWith(Openers)

	// Unproven gives, by the name of a check, the reason why its hook is not possible. Such a check is
	// reported as unproven, never as passed. It excuses only a missing hook; "many", if the service is
	// too small for it; and "histories", which are then not played, with everything that they alone
	// prove. Or it leaves something out of them: with "histories-delete" nothing is deleted, with
	// "histories-labels" no label has the greatest length, with "histories-min-hold" nobody asks for
	// MinHold, and with "shared-min-hold" no sharer does. With "many-sharers", the check many has no
	// sharers.
	Unproven map[string]string

	// Untold says why Inspect or List does not report something about holders. Its keys are the
	// operation and "label", "time" (Remaining) or "token", such as "Inspect time".
	Untold map[string]string

	// Sessions says that a lock depends on its client's session, which the backend renews by itself:
	// the lock lasts, and its validity is extended, without Renew.
	Sessions bool

	// Virtual returns the harness of a new service of the same kind that lives in memory and can run in
	// a bubble of [testing/synctest]. Histories are then played in virtual time. nil: they are played
	// on the service of New.
	Virtual func(t T) Harness

	// KnownGoroutines names functions whose goroutines may outlive a check: those of the harness
	// itself. They are not leaks.
	KnownGoroutines []string
}

// Fault breaks one client's connection to its service, or all of them if it has several. [Proxy] makes
// one.
type Fault interface {
	// Requests sets what happens to everything that the client sends from now on.
	Requests(m Mode)
	// Replies sets what happens to everything that the service sends from now on.
	Replies(m Mode)
	// Sent grows with every request that the client sends, delivered or not.
	Sent() int64
}

// Mode is what happens to sent data.
type Mode = faultproxy.Mode

// Modes. After any of them, Pass restores the connection, at least for new connections.
const (
	// Pass delivers it.
	Pass = faultproxy.Pass
	// Hold keeps it, and delivers it when the mode is Pass again, even if the sender has given up.
	Hold = faultproxy.Hold
	// Drop discards it.
	Drop = faultproxy.Drop
	// Reset breaks connections, including new ones: both ends notice.
	Reset = faultproxy.Reset
	// HoldOpen is Hold for connections that are already open, and Pass for later ones. So what a client
	// sends later to take a request back arrives before that request. It is used in Requests only.
	HoldOpen = faultproxy.HoldOpen
)

// OpenWith is [locker.Open] with these Openers, for Harness.Open.
func OpenWith(openers driver.Openers) func(context.Context, string, *locker.Options) (*locker.Client, error) {
	return func(ctx context.Context, rawURL string, opts *locker.Options) (*locker.Client, error) {
		return locker.Open(ctx, rawURL, opts, openers)
	}
}
