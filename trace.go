package locker

import (
	"context"
	"errors"
	"log/slog"
	"time"
)

// Trace is a set of functions that a [Client] calls at the events of its locks'
// lives; any of them may be nil. The Client calls them in the goroutine of the event,
// several at once. They must not block, since the lock waits for them. One that panics or ends its
// goroutine ends the call that it is called in, but no lock is left behind. Close may be called there:
// it does not wait for functions of Trace longer than a tenth of a second. Lock no name in a function that is told
// of the same name: the call may wait for the one that it is told of.
//
// ctx has the values of the context that the caller gave to Lock or TryLock (for
// Released, to Unlock), such as the caller's span. Only in LockDone it is that
// context itself; elsewhere it has no deadline and never ends. So a span for an event
// begins Event.Took before the call, ends with the call, and has the caller's span as
// its parent.
type Trace struct {
	// LockDone is called at the end of every Lock and TryLock, whatever the outcome,
	// even if the caller never reached the service or gave up in line. Err is the
	// error that the call returns, Took its duration, Token that of the lease.
	LockDone func(ctx context.Context, e Event)
	// Waiting is called when a Lock has learned what it waits for, and each time that
	// an outage has kept it from asking again. Err matches ErrHeld or ErrUnavailable,
	// Took is the time since the call, and Left is how much longer Lock waits for an
	// outage to end.
	Waiting func(ctx context.Context, e Event)
	// Attempt is called at the end of each request for a lock: Err is nil for a
	// grant, and matches ErrHeld if another holds the lock.
	Attempt func(ctx context.Context, e Event)
	// Renewed is called after each attempt to renew, with Err if it failed. If it
	// succeeded, [Lease.Until] has the new end already.
	Renewed func(ctx context.Context, e Event)
	// Lost is called when a lease ends without its holder's Unlock, with the cause in
	// Err and the length of the lease in Held.
	Lost func(ctx context.Context, e Event)
	// Released is called when a lease was released or, with Err set, could not be
	// released. Took is the time that the service took, and Held the time from the
	// grant to the release.
	Released func(ctx context.Context, e Event)
	// TakenBack is called when the leftover of an unknown outcome, a failed release
	// or a lost lease is gone (Err is nil), or when the Client has given up on it
	// (Err says why; the leftover stays until its TTL is over).
	TakenBack func(ctx context.Context, e Event)
}

// Event is one event in the life of a lock. Fields that the documentation of a
// function of [Trace] does not mention are zero.
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

// Stats are the numbers of a [Client] since it was made.
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

// count adds one to counters, which are fields of c.stats; nil is none.
func (c *Client) count(counters ...*uint64) {
	c.statsMu.Lock()
	defer c.statsMu.Unlock()
	for _, n := range counters {
		if n != nil {
			*n++
		}
	}
}

// Stats returns the client's numbers since it was made.
func (c *Client) Stats() (s Stats) {
	c.statsMu.Lock()
	s = c.stats
	c.statsMu.Unlock()
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
func (c *Client) Waits() []Wait { return c.lines.waits() }

// tell calls f, one of the functions of Trace, unless it is nil, with the values of ctx. What follows from
// the event is arranged before: f may panic, end its goroutine, or close the client.
func (c *Client) tell(ctx context.Context, f func(context.Context, Event), e Event) {
	if f != nil {
		c.busy.outside(func() { f(context.WithoutCancel(ctx), e) })
	}
}

// log tells Options.Logger of a lock.
func (c *Client) log(level slog.Level, msg, name string, args ...any) {
	args = append([]any{"name", name, "backend", c.guarantees.Backend}, args...)
	c.busy.outside(func() { c.opts.Logger.Log(context.Background(), level, "locker: "+msg, args...) })
}

// happened counts e in well or, if it has failed, in ill, warns that it has unless failed is "", and traces it.
func (c *Client) happened(ctx context.Context, f func(context.Context, Event), e Event, well, ill *uint64,
	failed string) {
	if e.Err != nil {
		well = ill
	}
	c.count(well)
	if e.Err != nil && failed != "" {
		c.log(slog.LevelWarn, failed, e.Name, "error", e.Err)
	}
	c.tell(ctx, f, e)
}

// done counts and traces the end of a Lock or TryLock.
func (cl *call) done(ctx context.Context, took time.Duration, err error) {
	e := Event{Op: cl.op, Name: cl.name, Took: took, Err: err}
	if cl.lease != nil {
		e.Token = cl.lease.grant.Token
	}
	c := cl.client
	n := &c.stats.Rejected
	switch e.Outcome() {
	case "ok":
		n = &c.stats.Acquired
	case "held":
		n = &c.stats.Contended
	case "unavailable":
		n = &c.stats.Unavailable
	case "canceled":
		n = &c.stats.GaveUp
	}
	c.statsMu.Lock()
	c.stats.WaitTime += took
	*n++
	c.statsMu.Unlock()
	if c.trace.LockDone != nil {
		c.trace.LockDone(ctx, e)
	}
}

// attempted counts and traces the end of a request for a lock.
func (c *Client) attempted(cl *call, took time.Duration, err error) {
	var n *uint64
	switch {
	case errors.Is(err, ErrHeld):
		n = &c.stats.Refused
	case err != nil:
		n = &c.stats.Failed
	}
	c.count(&c.stats.Attempts, n)
	c.tell(cl.values, c.trace.Attempt, Event{Op: cl.op, Name: cl.name, Took: took, Err: err})
}

// told is an event of the lease, which has lasted until then.
func (l *Lease) told(op string, until time.Time, took time.Duration, err error) Event {
	return Event{Op: op, Name: l.name, Token: l.grant.Token, Took: took, Held: until.Sub(l.start), Err: err}
}

// released counts and traces the release of a lease, which began then. What is not confirmed is taken back.
func (l *Lease) released(ctx context.Context, began time.Time, took time.Duration, err error) {
	c := l.client
	if err != nil && !errors.Is(err, ErrLost) {
		l.takeBack(unreleased)
	}
	c.happened(ctx, c.trace.Released, l.told("unlock", began, took, err), &c.stats.Released, nil, "release failed")
}
