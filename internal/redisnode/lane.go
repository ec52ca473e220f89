package redisnode

import (
	"errors"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/golockers/locker/internal/clock"
)

// A lane takes attempts to one server and back. What waits goes together in one flight: one round trip, with one
// script call for up to maxShare locks. At most two flights take off within slowTime, so that what comes meanwhile
// gathers; four smaller ones where nothing else keeps the server and the program busy at once ([Node.Spread]). Behind a
// slow one others follow: on a long way, and where a connection hangs.
//
// Time in the queue is bounded by the caller's context alone (R21). A caller returns when its context ends,
// whatever the driver does (R8).
const (
	maxFlight  = 512
	maxFlights = 2
	spreadOver = 4 // flights, instead: of 256 callers it takes a sixth of the time away
	slowTime   = 2 * time.Millisecond
	maxAloft   = 8 // in all, the slow and the silent ones counted
	maxYields  = 8 // how often a flight lets others run before it takes off

	// A caller that finds the lane idle takes its flight itself: to hand it to another goroutine costs 10 to 20 µs of
	// 50 to 100. The driver cannot be interrupted there. So this is only where answers come fast, and through a copy
	// of the client whose time limits are short.
	shortTime  = 50 * time.Millisecond
	fastTime   = shortTime / 10
	fastEnough = 3
)

// freshPool is more connections than there are at a time: after so many that failed the driver does not try for a second.
const freshPool = 1 << 10

type lane struct {
	node                 *Node
	addr                 string
	server, short, fresh *redis.Client // with time limits of ours: see newLane
	provided             bool          // each connection may have other credentials
	hedging              chan struct{} // a place for each copy of a silent flight

	came atomic.Int64 // how many attempts were ever queued

	mu       sync.Mutex
	queue    []*Attempt // those that were left are among them for a while
	gone     int        // how many
	flights  []*flight  // those that are not over
	waking   bool       // launch is called when a flight has become slow
	boarding bool       // a pilot is about to take off
	draining bool
	slowest  time.Duration // that an answer took lately
	fast     int           // how many came fast since the last that did not
	run      *run          // of the server, as far as is known
	closed   bool
}

// flight is a round trip. It is guarded by the lane's mutex.
type flight struct {
	attempts []*Attempt // nil among them: the driver is done with it, and so is its maker
	run      *run       // the only one that carries out what is bound to a run; nil: not known yet
	since    time.Time
	limit    time.Duration // for an answer
	copies   int           // that the driver has
	sent     int           // copies that may have been carried out, or may yet be
	over     bool          // nothing is waited for any more
	silent   bool          // it holds no slot, and copies are sent
	timer    *time.Timer
	one      struct { // what the first copy of one attempt needs, in one allocation
		attempts, told [1]*Attempt
		replies        [1]reply
		open           [1]*reply
		calls          [1]call
	}
}

func (n *Node) newLane(c *redis.Client) *lane {
	o := c.Options()
	l := &lane{node: n, addr: o.Addr, server: n.bounded(c), hedging: make(chan struct{}, maxHedges)}
	if l.addr == sentinels {
		l.addr = n.Addr
	}
	l.provided = o.CredentialsProvider != nil || o.CredentialsProviderContext != nil || o.StreamingCredentialsProvider != nil
	l.short = withTimeout(c, shortTime)
	l.short.Options().ContextTimeoutEnabled = true // the options are its own
	l.fresh = redis.NewClient(n.freshOptions(c, freshPool))
	return l
}

// start has a sent, and told called when it is over.
func (l *lane) start(a *Attempt) {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		a.Outcome = Outcome{Err: &Error{Op: a.Op, Addr: l.addr, Err: ErrClosed}}
		a.through()
		go a.tell() // its maker may hold a mutex that told takes
		return
	}
	a.stage = queued
	l.queue = append(l.queue, a)
	l.came.Add(1)
	l.launch()
	l.mu.Unlock()
}

// alone has a sent by its caller, if the lane is idle and fast.
func (l *lane) alone(a *Attempt) bool {
	if l.node.timeout <= shortTime || a.Limit > 0 && a.Limit <= shortTime {
		return false
	}
	l.mu.Lock()
	if l.closed || l.boarding || len(l.flights) > 0 || len(l.queue) > 0 || l.fast < fastEnough ||
		!a.repeatable(l.run) { // what it does not get in its short time, a copy has to ask for
		l.mu.Unlock()
		return false
	}
	f := l.board(nil, a)
	l.mu.Unlock()
	ctx := clock.Within(l.node.ctx, shortTime) // also for a place in the pool, and for a new connection
	c := l.firstCopy(f, l.short, nil)
	l.carry(ctx, c)
	ctx.Cancel()
	if len(c.open) > 0 { // what is not done takes longer
		l.mu.Lock()
		l.watch(f)
		l.mu.Unlock()
		if l.node.Go(func() {
			c.client = l.server
			l.carry(l.node.ctx, c)
			l.land(f, c, f.since)
		}) {
			return true
		}
	}
	l.land(f, c, f.since)
	l.mu.Lock()
	over := f.over
	l.mu.Unlock()
	if !over { // nothing is known
		l.node.Go(func() { l.hedge(f, time.Now()) })
	}
	return true
}

// watch has copies of a flight sent if it is silent for too long. l.mu is held.
func (l *lane) watch(f *flight) {
	wait := min(f.limit, l.patience(silentAfter+time.Duration(len(f.attempts))*silentEach))
	f.timer = time.AfterFunc(wait, func() { l.node.Go(func() { l.hedge(f, f.since.Add(wait)) }) })
}

// launch starts a pilot if a flight may take off. l.mu is held.
func (l *lane) launch() {
	if !l.boarding && l.may() {
		l.boarding = true
		l.node.goroutines.Go(l.pilot)
	}
}

// may reports whether a flight may take off: the only one, or another if it has as many attempts as those before it.
// l.mu is held.
func (l *lane) may() bool {
	waiting := len(l.queue) - l.gone
	if waiting == 0 || l.closed || len(l.flights) >= maxAloft {
		return false
	}
	quick, others, now, next := 0, 0, time.Now(), slowTime
	for _, f := range l.flights {
		if left := slowTime - now.Sub(f.since); left > 0 && !f.silent {
			quick++
			others += len(f.attempts)
			next = min(next, left)
		}
	}
	if quick == 0 || quick < l.most() && waiting >= others {
		return true
	}
	if !l.waking {
		l.waking = true
		time.AfterFunc(next, func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.waking = false
			l.launch()
		})
	}
	return false
}

// most is how many flights may take off within slowTime.
func (l *lane) most() int {
	if l.node.Spread {
		return spreadOver
	}
	return maxFlights
}

// stuckSince returns since when no attempt can take off because all flights are silent; zero: one can. l.mu is held.
func (l *lane) stuckSince() (since time.Time) {
	if len(l.flights) < maxAloft {
		return since
	}
	for _, f := range l.flights {
		if !f.silent {
			return time.Time{}
		}
		if f.since.After(since) {
			since = f.since
		}
	}
	return since
}

// pilot makes flights for as long as attempts wait.
func (l *lane) pilot() {
	var room buffers
	for {
		l.gather()
		l.mu.Lock()
		l.boarding = false
		if !l.may() {
			l.mu.Unlock()
			return
		}
		f := l.board(l.take(), nil)
		l.watch(f)
		l.launch()
		l.mu.Unlock()
		c := l.firstCopy(f, l.server, &room)
		l.carry(l.node.ctx, c)
		l.land(f, c, f.since)
		l.mu.Lock()
		if l.boarding || !l.may() {
			l.mu.Unlock()
			return
		}
		l.boarding = true
		l.mu.Unlock()
	}
}

// gather lets the goroutines run that were just answered, or are about to ask, for as long as more come: their requests
// share the flight.
func (l *lane) gather() {
	yields := maxYields
	if l.node.Spread {
		yields = 1 // what comes later has a flight of its own
	}
	for range yields {
		before := l.came.Load()
		runtime.Gosched()
		if l.came.Load() == before {
			return
		}
	}
}

// take takes those that go now from the queue. l.mu is held.
func (l *lane) take() []*Attempt {
	waiting, most := len(l.queue)-l.gone, maxFlight
	if l.node.Spread && len(l.flights) < spreadOver { // a script call's worth, at least; on a long way, all
		most = min(maxFlight, max(maxShare, (waiting+spreadOver-1)/spreadOver))
	}
	all := make([]*Attempt, 0, min(waiting, most))
	i := 0
	for ; i < len(l.queue) && len(all) < most; i++ {
		if a := l.queue[i]; a.stage == queued {
			all = append(all, a)
		} else {
			l.gone--
		}
	}
	rest := copy(l.queue, l.queue[i:])
	clear(l.queue[rest:])
	l.queue = l.queue[:rest]
	return all
}

// board makes a flight that is under way from now on, of all or of one. l.mu is held.
func (l *lane) board(all []*Attempt, one *Attempt) *flight {
	if l.run != nil && l.run.id == "" && time.Since(l.run.met) > askAgain {
		l.run = nil // the user may have been given the right to INFO
	}
	f := &flight{attempts: all, run: l.run, since: time.Now(), limit: l.node.timeout, copies: 1, sent: 1}
	if one != nil {
		f.one.attempts[0] = one
		f.attempts = f.one.attempts[:]
	}
	for _, a := range f.attempts {
		a.stage, a.sentAt = flying, f.since
		if a.Limit > 0 { // where there is much to do all answers take long, and none is missing (R21)
			f.limit = min(f.limit, l.patience(a.Limit))
		}
	}
	l.flights = append(l.flights, f)
	return f
}

// patience is d, or more where answers are slow. l.mu is held.
func (l *lane) patience(d time.Duration) time.Duration { return max(d, 4*l.slowest) }

// land notes what a copy of a flight has brought, which began then. Others may still be under way.
func (l *lane) land(f *flight, c *flightCopy, began time.Time) {
	l.mu.Lock()
	f.copies--
	told, answered, undone := c.told[:0], false, len(c.replies) > 0
	for i := range c.replies {
		r := &c.replies[i]
		a, class := r.attempt, Classify(r.cause)
		answered = answered || class == Answered
		undone = undone && class != Answered && !class.Unknown() && !r.silent && r.copies == 0
		// The others may bring more than the failure of one of them, or of a first one that came after them.
		if a.stage != flying || r.silent || f.copies > 0 && class != Answered && class != Refusing &&
			(c.hedge || errors.Is(r.cause, errOtherRun)) {
			continue
		}
		a.Outcome = Outcome{Answer: r.answer, Since: f.since, Copies: f.sent + r.copies}
		if r.cause != nil {
			a.Err = l.node.failed(a.Op, l.addr, r.cause)
			a.Err.Unknown = a.Err.Unknown || a.Copies > 1
		}
		a.stage = over
		told = append(told, a)
	}
	if undone {
		f.sent-- // it is as if it had not been sent
	}
	if answered {
		took := time.Since(began)
		l.slowest = max(min(took, maxSlowest), l.slowest-l.slowest/16)
		if l.fast++; took > fastTime {
			l.fast = 0
		}
	}
	l.settle(f)
	l.mu.Unlock()
	for _, a := range told {
		a.tell()
	}
}

// fail ends a flight without an answer.
func (l *lane) fail(f *flight, err error) {
	l.mu.Lock()
	var told []*Attempt
	for _, a := range f.attempts {
		if a != nil && a.stage == flying {
			a.Outcome = Outcome{Err: &Error{Op: a.Op, Addr: l.addr, Err: err, Unknown: true}, Since: f.since, Copies: f.sent}
			a.stage = over
			told = append(told, a)
		}
	}
	l.settle(f)
	l.mu.Unlock()
	for _, a := range told {
		a.tell()
	}
}

// settle lets go of what the driver and the makers are both done with, and ends the flight if nothing is waited for.
// l.mu is held.
func (l *lane) settle(f *flight) {
	waiting := false
	for i, a := range f.attempts {
		switch {
		case a == nil:
		case a.stage == flying:
			waiting = true
		case f.copies == 0:
			a.through() // before its maker is told, and uses it again
			f.attempts[i] = nil
		}
	}
	if !waiting && !f.over {
		f.over = true
		if f.timer != nil {
			f.timer.Stop()
		}
		l.flights = slices.DeleteFunc(l.flights, func(other *flight) bool { return other == f })
		l.launch()
	}
}

// leave takes an attempt away from the lane, and reports whether it was sent; not ok: it is over.
func (l *lane) leave(a *Attempt) (sent, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch a.stage {
	case queued:
		l.drop(a)
		return false, true
	case flying:
		a.stage = left
		return true, true
	}
	return false, false
}

// drop takes an attempt out of the queue. l.mu is held.
func (l *lane) drop(a *Attempt) {
	a.stage = left
	if l.gone++; l.gone > len(l.queue)/2 {
		l.queue = slices.DeleteFunc(l.queue, func(a *Attempt) bool { return a.stage != queued })
		l.gone = 0
	}
	a.through()
}

// close ends everything with ErrClosed. The driver may still be at work.
func (l *lane) close() {
	l.mu.Lock()
	l.closed = true
	waiting := slices.DeleteFunc(l.queue, func(a *Attempt) bool { return a.stage != queued })
	l.queue, l.gone = nil, 0
	for _, a := range waiting {
		a.stage = over
		a.Outcome = Outcome{Err: &Error{Op: a.Op, Addr: l.addr, Err: ErrClosed}}
		a.through()
	}
	aloft := slices.Clone(l.flights)
	l.mu.Unlock()
	for _, a := range waiting {
		a.tell()
	}
	for _, f := range aloft {
		l.fail(f, ErrClosed)
	}
	_ = l.fresh.Close()
}
