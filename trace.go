package locker

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"
)

// Trace is a set of functions that a [Client] calls at the events of its
// locks' lives; any of them may be nil. They are called from the goroutine in
// which the event happens, several at once, and must not block: the lock's
// life waits for them.
//
// ctx carries the values of the context that the caller gave to Lock or
// TryLock, and to Unlock for Released, such as the span that it is in. Only in
// LockDone is it that context itself; elsewhere it has no deadline and never
// ends. So a span for an event begins Event.Took before the call, ends with it,
// and has the caller's as its parent.
type Trace struct {
	// LockDone is called at the end of every Lock and TryLock, whatever the
	// outcome: also of a caller who never reached the service or gave up in
	// line. Err is what the call returns, Took its length, Token the lease's.
	LockDone func(ctx context.Context, e Event)
	// Waiting is called when a Lock has learned what is in its way, and each
	// time that an outage has kept it from asking again. Err matches ErrHeld or
	// ErrUnavailable, Took is the time since the call, and Left how much longer
	// Lock sits an outage out.
	Waiting func(ctx context.Context, e Event)
	// Attempt is called when the service has answered one request for a lock,
	// or has not: Err is nil for a grant and matches ErrHeld for a refusal.
	Attempt func(ctx context.Context, e Event)
	// Renewed is called after each attempt to renew, with Err if it failed.
	Renewed func(ctx context.Context, e Event)
	// Lost is called when a lease ends without its holder having asked, with
	// the cause in Err and the lease's length in Held.
	Lost func(ctx context.Context, e Event)
	// Released is called when a lease that was held has been released or, with
	// Err set, could not be. Took is the time that the service took, Held that
	// from the grant to the release.
	Released func(ctx context.Context, e Event)
	// TakenBack is called when what an unknown outcome, a failed release or a
	// lost lease may have left behind is gone (Err is nil), or has been given
	// up on (Err says why, and the TTL bounds how long it stays).
	TakenBack func(ctx context.Context, e Event)
}

// Event is one event in the life of a lock. What a function of [Trace] does
// not mention is zero.
type Event struct {
	Op    string        // "lock", "trylock", "renew", "unlock", "lease" (its end), "takeback"
	Name  string        // as the caller gave it, without prefix
	Token uint64        // the fencing token, 0 if there is none
	Took  time.Duration // from the beginning of the call or request to now
	Held  time.Duration // from the grant to now
	Left  time.Duration // how much longer an outage is sat out
	Err   error         // nil: it succeeded

	_ struct{}
}

// Outcome returns Err in a word, for labels of metrics: "ok", "held", "lost",
// "unavailable", "canceled" (by the caller's context, with nothing else known),
// "closed", "invalid" or "error".
func (e Event) Outcome() string {
	switch {
	case e.Err == nil:
		return "ok"
	case errors.Is(e.Err, ErrHeld):
		return "held"
	case errors.Is(e.Err, ErrLost):
		return "lost"
	case errors.Is(e.Err, ErrUnavailable):
		return "unavailable"
	case errors.Is(e.Err, ErrClosed):
		return "closed"
	case errors.Is(e.Err, ErrInvalid), errors.Is(e.Err, errors.ErrUnsupported):
		return "invalid"
	case errors.Is(e.Err, context.Canceled), errors.Is(e.Err, context.DeadlineExceeded):
		return "canceled"
	}
	return "error"
}

// Stats are a [Client]'s numbers since it was made.
type Stats struct {
	Held    int // leases held now
	Waiting int // callers of Lock that wait now, those talking to the service included
	Pending int // take-backs under way now

	// How calls of Lock and TryLock ended. The sum of these is the number of
	// calls that have returned.
	Acquired    uint64 // with a lease
	Contended   uint64 // with ErrHeld, also at the end of the context
	Unavailable uint64 // with ErrUnavailable, also at the end of the context
	GaveUp      uint64 // at the end of the context, with neither
	Rejected    uint64 // with any other error

	WaitTime time.Duration // the length of all those calls together

	Attempts    uint64 // requests for a lock sent to the backend
	Refused     uint64 // attempts answered "held"
	Failed      uint64 // attempts without an answer, or with an error
	Renewed     uint64 // renewals that succeeded
	RenewFailed uint64 // renewals that did not
	Lost        uint64 // leases that ended without their holder having asked
	Released    uint64 // releases that succeeded
	TakenBack   uint64 // take-backs that succeeded
	LeftBehind  uint64 // take-backs given up: the TTL ends what is left

	_ struct{}
}

// counters are the live numbers behind Stats; those of the moment are not kept.
type counters struct {
	mu sync.Mutex
	s  Stats
}

func (n *counters) add(count func(*Stats)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	count(&n.s)
}

// Stats returns the client's numbers since it was made.
func (c *Client) Stats() Stats {
	var s Stats
	c.counters.add(func(live *Stats) { s = *live })
	s.Held, s.Waiting = c.lines.count()
	c.mu.Lock()
	defer c.mu.Unlock()
	s.Pending = len(c.pending)
	return s
}

// Wait is a name that callers of Lock wait for.
type Wait struct {
	Name    string        // as the callers gave it, without prefix
	Callers int           // how many they are
	Longest time.Duration // since the call of the first of them

	_ struct{}
}

// Waits returns the names that callers of Lock wait for now, in no order.
func (c *Client) Waits() []Wait {
	all := c.lines.waits()
	for i := range all {
		all[i].Name = strings.TrimPrefix(all[i].Name, c.opts.Prefix)
	}
	return all
}

// lockDone tells of the end of a Lock or TryLock.
func (c *Client) lockDone(ctx context.Context, op, name string, took time.Duration, l *Lease, err error) {
	e := Event{Op: op, Name: name, Took: took, Err: err}
	if l != nil {
		e.Token = l.token
	}
	c.counters.add(func(s *Stats) {
		s.WaitTime += took
		switch e.Outcome() {
		case "ok":
			s.Acquired++
		case "held":
			s.Contended++
		case "unavailable":
			s.Unavailable++
		case "canceled":
			s.GaveUp++
		default:
			s.Rejected++
		}
	})
	if c.trace.LockDone != nil {
		c.trace.LockDone(ctx, e)
	}
}

// attempted tells of an answer of the service, or of none.
func (c *Client) attempted(h *head, took time.Duration, err error) {
	c.counters.add(func(s *Stats) {
		s.Attempts++
		switch {
		case err == nil:
		case errors.Is(err, ErrHeld):
			s.Refused++
		default:
			s.Failed++
		}
	})
	if c.trace.Attempt != nil {
		c.trace.Attempt(h.values, Event{Op: h.op, Name: h.name, Took: took, Err: err})
	}
}

// renewed tells of one attempt to renew.
func (l *Lease) renewed(took time.Duration, err error) {
	c := l.client
	if err == nil {
		c.counters.add(func(s *Stats) { s.Renewed++ })
	} else {
		c.counters.add(func(s *Stats) { s.RenewFailed++ })
		c.warn("renewal failed", l.name, err)
	}
	if c.trace.Renewed != nil {
		c.trace.Renewed(l.values, Event{Op: "renew", Name: l.name, Token: l.token, Took: took, Held: time.Since(l.start), Err: err})
	}
}

// lost tells that the lease has ended without its holder having asked.
func (l *Lease) lost(cause error) {
	c := l.client
	c.counters.add(func(s *Stats) { s.Lost++ })
	c.warn("lease lost", l.name, cause)
	if c.trace.Lost != nil {
		c.trace.Lost(l.values, Event{Op: "lease", Name: l.name, Token: l.token, Held: time.Since(l.start), Err: cause})
	}
}

// released tells of the release of a lease that was held.
func (l *Lease) released(ctx context.Context, took time.Duration, err error) {
	c := l.client
	if err == nil {
		c.counters.add(func(s *Stats) { s.Released++ })
	} else {
		c.warn("release failed", l.name, err)
	}
	if c.trace.Released != nil {
		held := time.Since(l.start) - took
		c.trace.Released(context.WithoutCancel(ctx), Event{Op: "unlock", Name: l.name, Token: l.token, Took: took, Held: held, Err: err})
	}
}
