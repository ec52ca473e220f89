package locker

import "time"

// Trace is a set of functions that a [Client] calls at the events of its
// locks' lives; any of them may be nil. They are called from the goroutine in
// which the event happens, several at once, and must not block: a lease's
// events wait for them. Names are as the callers gave them, without prefix.
type Trace struct {
	// Attempt is called when the service has answered one request for a lock,
	// or has not: err is nil for a grant, matches ErrHeld for a refusal.
	Attempt func(name string, took time.Duration, err error)
	// Acquired is called when a caller gets a lease, after having waited so long.
	Acquired func(name string, token uint64, waited time.Duration)
	// Renewed is called after each attempt to renew.
	Renewed func(name string, took time.Duration, err error)
	// Lost is called when a lease ends without its holder having asked.
	Lost func(name string, cause error)
	// Released is called after each attempt to release a lock that was held.
	Released func(name string, took time.Duration, err error)
	// TakenBack is called when what an unknown outcome, a failed release or a
	// lost lease may have left behind is gone (err is nil), or has been given
	// up on (err says why, and the TTL bounds how long it stays).
	TakenBack func(name string, err error)
}

// Stats are a [Client]'s numbers since it was made.
type Stats struct {
	Held    int // leases held now
	Waiting int // callers of Lock that wait now, those talking to the service included
	Pending int // take-backs under way now

	Acquired    uint64        // leases given to callers
	Attempts    uint64        // requests for a lock sent to the backend
	Refused     uint64        // attempts answered "held"
	Failed      uint64        // attempts without an answer, or with an error
	Renewed     uint64        // renewals that succeeded
	RenewFailed uint64        // renewals that did not
	Lost        uint64        // leases that ended without their holder having asked
	Released    uint64        // releases that succeeded
	TakenBack   uint64        // take-backs that succeeded
	LeftBehind  uint64        // take-backs given up: the TTL ends what is left
	WaitTime    time.Duration // sum over Acquired of the time from the call to the lease
}
