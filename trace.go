package locker

import (
	"context"
	"errors"
	"log/slog"
	"time"
)

// Trace is a set of functions that a [Client] calls on events in its locks' lives; any may be nil. The
// Client calls them in the goroutine of the event, several at once. They must not block, because the
// lock waits for them. A function that panics or ends its goroutine ends the call that invoked it, but
// no lock is left behind. A function may call Close, which waits for running functions at most a tenth
// of a second. In a function, do not lock the name that the event is about: that call may wait for the
// very call that reports the event.
//
// ctx has the values of the context that the caller gave to Lock or TryLock (for Released, to Unlock),
// such as the caller's span. In LockDone it is that context itself; in all others it has no deadline
// and never ends. So a span for an event begins Event.Took before the call, ends with the call, and has
// the caller's span as its parent.
type Trace struct {
	// LockDone is called at the end of every Lock and TryLock, whatever the outcome, even if the caller
	// never reached the service or gave up in line. Err is the error that the call returns, Took its
	// duration, Token the lease's token.
	LockDone func(ctx context.Context, e Event)
	// Waiting is called when a Lock learns what it waits for, and each time an outage delays its next
	// attempt. Err matches ErrHeld or ErrUnavailable, Took is the time since the call, and Left is how
	// much longer Lock waits for an outage to end: up to the OutageTimeout, or MaxWait if that ends
	// sooner.
	Waiting func(ctx context.Context, e Event)
	// Attempt is called at the end of each request for a lock: Err is nil for a grant, and matches
	// ErrHeld if another holder has the lock. Took is the duration of the request.
	Attempt func(ctx context.Context, e Event)
	// Renewed is called after each attempt to renew, with Err if it failed. If it succeeded,
	// [Lease.Until] is already the new end. Took is the duration of the request, and Held the time
	// since the grant.
	Renewed func(ctx context.Context, e Event)
	// Lost is called when a lease ends without its holder's Unlock. Err is the cause, and Held the
	// length of the lease.
	Lost func(ctx context.Context, e Event)
	// Released is called when a lease was released or, with Err set, could not be released. Took is the
	// duration of the request, and Held the time from the grant to the release.
	Released func(ctx context.Context, e Event)
	// TakenBack is called when what an unknown outcome, a failed release or a lost lease left in the
	// service is gone (Err is nil), or when the Client gives up removing it (Err says why; it stays
	// until its TTL ends).
	TakenBack func(ctx context.Context, e Event)
}

// Event is one event in the life of a lock. Op and Name are always set; Token in LockDone, Renewed,
// Lost and Released. The other fields are zero unless the function's documentation in [Trace] mentions
// them.
type Event struct {
	Op    string        // "lock", "trylock", "renew", "unlock", "lease" (its end), "takeback"
	Name  string        // as the caller gave it, without prefix
	Token uint64        // the fencing token, 0 if there is none
	Took  time.Duration // from the beginning of the call or request to now
	Held  time.Duration // from the grant to now
	Left  time.Duration // how much longer Lock waits for an outage to end
	Err   error         // nil: it succeeded

	_ struct{}
}

// Outcome returns Err as one word, for metric labels: "ok", "held", "lost", "unavailable", "canceled"
// (by the caller's context, with nothing else known), "closed", "invalid" or "error".
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

// Stats are a [Client]'s numbers since it was created.
type Stats struct {
	Held    int // leases held now
	Waiting int // callers of Lock waiting now, including those that ask the service
	Pending int // take-backs in progress now

	// How calls of Lock and TryLock ended. Together they are the number of calls that have returned.
	Acquired    uint64 // with a lease
	Contended   uint64 // with ErrHeld, also at the end of MaxWait or of the context
	Unavailable uint64 // with ErrUnavailable, also at the end of MaxWait or of the context
	GaveUp      uint64 // at the end of the context, with neither
	Rejected    uint64 // with any other error

	WaitTime time.Duration // the total duration of all those calls

	Attempts    uint64 // requests for a lock sent to the backend
	Refused     uint64 // attempts answered "held"
	Failed      uint64 // attempts without an answer, or with an error
	Renewed     uint64 // renewals that succeeded
	RenewFailed uint64 // renewals that did not
	Lost        uint64 // leases that ended without their holder's Unlock
	Released    uint64 // releases that succeeded
	TakenBack   uint64 // take-backs that succeeded
	LeftBehind  uint64 // take-backs given up: the TTL removes what is left

	_ struct{}
}

// count increments counters, which are fields of c.stats or nil.
func (c *Client) count(counters ...*uint64) {
	c.statsMu.Lock()
	defer c.statsMu.Unlock()
	for _, n := range counters {
		if n != nil {
			*n++
		}
	}
}

// Stats returns the client's numbers since it was created.
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

// Wait is a name that callers of Lock are waiting for.
type Wait struct {
	Name    string        // as the callers gave it, without prefix
	Callers int           // how many wait
	Longest time.Duration // since the first of them called

	_ struct{}
}

// Waits returns the names that callers of Lock are waiting for now, in no particular order.
func (c *Client) Waits() []Wait { return c.lines.waits() }

// tell calls f, a function of Trace or nil, with the values of ctx. Everything that the event requires
// is done before: f may panic, end its goroutine, or close the client.
func (c *Client) tell(ctx context.Context, f func(context.Context, Event), e Event) {
	if f != nil {
		c.busy.outside(func() { f(context.WithoutCancel(ctx), e) })
	}
}

// log writes a record about a lock to Options.Logger.
func (c *Client) log(level slog.Level, msg, name string, args ...any) {
	args = append([]any{"name", name, "backend", c.guarantees.Backend}, args...)
	c.busy.outside(func() { c.opts.Logger.Log(context.Background(), level, "locker: "+msg, args...) })
}

// happened counts e in well or, if it failed, in ill, logs the failure unless failed is "", and traces
// e.
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

// told is an event of the lease, which had lasted until then.
func (l *Lease) told(op string, until time.Time, took time.Duration, err error) Event {
	return Event{Op: op, Name: l.name, Token: l.grant.Token, Took: took, Held: until.Sub(l.start), Err: err}
}

// released counts and traces the release of a lease, which started at began. An unconfirmed release is
// taken back.
func (l *Lease) released(ctx context.Context, began time.Time, took time.Duration, err error) {
	c := l.client
	if err != nil && !errors.Is(err, ErrLost) {
		l.takeBack(unreleased)
	}
	c.happened(ctx, c.trace.Released, l.told("unlock", began, took, err), &c.stats.Released, nil, "release failed")
}
