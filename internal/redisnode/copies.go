package redisnode

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/golockers/locker/internal/clock"
)

// How a copy of a flight gets to the server and back, and when there are several.
//
// A flight that is not answered in time is silent: its connection may be dead while the server is well (R22). It
// holds no slot from then on, and copies of it go on fresh connections, one beside the other, whose handshake finds
// out first whether the server answers at all: one that does not gets no copy (R21). The answer that comes first
// counts.
//
// A request is carried out by one run of a server alone, or it would have two answers after a fail-over: the names of
// the scripts are bound to the run that the first copy was meant for, and another does not know them. A server is
// given a text only on a connection on which it has said which run it is. Where it does not say so (INFO is refused,
// or renamed), there are no copies but of what does no harm twice (Script.Anywhere); it is asked again now and then.
//
// A flight of which no copy is under way, nor can be sent to where it would be answered, ends: its callers do not wait
// for the rest of their time.
const (
	silentAfter = 100 * time.Millisecond // or four times the slowest answer lately, if that is more
	silentEach  = 200 * time.Microsecond // for each request of the flight
	freshTime   = 250 * time.Millisecond // likewise: what a fresh connection may take
	freshPause  = 50 * time.Millisecond  // until one more is tried beside it
	askAgain    = 30 * time.Second       // which run it is, where a server did not say
	maxHedges   = 4
	maxSlowest  = 500 * time.Millisecond

	maxAgain  = 5                     // how often a copy is sent in another way
	maxFresh  = 2                     // of these, on a fresh connection
	remapTime = 50 * time.Millisecond // a pause for a Cluster's client to read the Cluster's map again
	maxMoves  = 10
)

// flightCopy is what one copy of a flight has brought.
type flightCopy struct {
	f       *flight
	hedge   bool // it is not the first
	replies []reply
	open    []*reply // those that are not answered yet
	room    []call
	told    []*Attempt
	way
}

// unsent is what is known of an attempt before it is sent: a copy whose time is over by then brings no answer.
func unsent(a *Attempt) reply { return reply{attempt: a, cause: ErrTimeout, silent: true} }

// buffers are those of first copies, one after the other. A copy beside a first one has its own.
type buffers struct {
	replies []reply
	open    []*reply
	told    []*Attempt
}

func (l *lane) firstCopy(f *flight, client *redis.Client, b *buffers) *flightCopy {
	c := &flightCopy{f: f, way: way{client: client}}
	if n := len(f.attempts); n == 1 {
		c.replies, c.open, c.room, c.told = f.one.replies[:], f.one.open[:], f.one.calls[:0], f.one.told[:0]
	} else {
		clear(b.replies)
		b.replies, b.open = slices.Grow(b.replies[:0], n)[:n], slices.Grow(b.open[:0], n)[:n]
		b.told = slices.Grow(b.told[:0], n)
		c.replies, c.open, c.told = b.replies, b.open, b.told
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, a := range f.attempts {
		c.replies[i], c.open[i] = unsent(a), &c.replies[i]
	}
	return c
}

// nextCopy makes a copy of what of a silent flight still flies; nil: there is none to send. l.mu is held.
func (l *lane) nextCopy(f *flight) *flightCopy {
	c := &flightCopy{f: f, hedge: true, replies: make([]reply, 0, len(f.attempts))}
	for _, a := range f.attempts {
		if a != nil && a.stage == flying && (f.run == nil || a.repeatable(f.run)) {
			c.replies = append(c.replies, unsent(a))
		}
	}
	if len(c.replies) == 0 {
		return nil
	}
	for i := range c.replies {
		c.open = append(c.open, &c.replies[i])
	}
	f.copies++
	f.sent++
	return c
}

// hedge sends copies of a silent flight until one is answered, or the time for all is over. It was to be called at
// due: where this very process was late, answers may be there and unread.
func (l *lane) hedge(f *flight, due time.Time) {
	l.mu.Lock()
	if f.over || f.silent {
		l.mu.Unlock()
		return
	}
	f.silent = true
	l.launch()
	l.mu.Unlock()
	late := time.Since(due)
	ctx, cancel := context.WithDeadline(l.node.ctx, f.since.Add(f.limit+late))
	defer cancel()
	if late > fastTime { // there is too much to do here, and copies would make it more (R21)
		_ = clock.Sleep(ctx, 10*late)
	}
	for ctx.Err() == nil {
		select {
		case l.hedging <- struct{}{}:
		case <-ctx.Done():
			continue
		}
		l.mu.Lock()
		l.settle(f) // its callers may have left
		done, wait := f.over, l.patience(freshTime)
		var c *flightCopy
		if !done {
			c = l.nextCopy(f)
		}
		vain := c == nil && f.copies == 0 && !done
		l.mu.Unlock()
		if c == nil {
			<-l.hedging
			if vain {
				break
			}
		} else if !l.node.Go(func() { l.again(ctx, c, wait) }) {
			<-l.hedging
			l.land(f, &flightCopy{}, time.Now())
			done = true
		}
		if done {
			return
		}
		_ = clock.Sleep(ctx, freshPause)
	}
	l.fail(f, ErrTimeout)
}

// again sends a copy of a silent flight on a fresh connection.
func (l *lane) again(ctx context.Context, c *flightCopy, wait time.Duration) {
	defer func() { <-l.hedging }()
	once, done := context.WithTimeout(ctx, wait)
	defer done()
	began := time.Now()
	c.client = l.fresh
	l.carry(once, c)
	l.land(c.f, c, began)
}

// way is how a copy is sent next.
type way struct {
	how
	client *redis.Client
	moved  int // how often the Cluster's client was asked to send it
	anew   int // how often it went on a fresh connection
	again  int
}

// carry has the driver take a copy of a flight to the server and back, and once more in another way where the table
// of outcomes says so. If ctx ends, some may still be open.
func (l *lane) carry(ctx context.Context, c *flightCopy) {
	if c.run == nil {
		l.mu.Lock()
		c.run = c.f.run
		l.mu.Unlock()
	}
	for len(c.open) > 0 && ctx.Err() == nil {
		l.send(ctx, c)
		var moves, hangs bool
		full, apart, open := c.inFull, c.apart, c.open[:0]
		for _, r := range c.open {
			a, class := r.attempt, Classify(r.cause)
			switch {
			case c.again >= maxAgain+c.moved:
			case class == Forgotten && !full && !a.script.strict:
				c.inFull = true
				open = append(open, r)
			case class == Refusing && len(c.open) > 1 && !apart && !isBadCredentials(r.cause):
				c.apart = true
				open = append(open, r)
			case class == Elsewhere && l.node.cluster != nil && c.moved < maxMoves:
				moves = true
				open = append(open, r)
			case class == Outdated && c.anew < maxFresh && (l.provided || !isBadCredentials(r.cause)),
				class == HungUp && c.anew < maxFresh && isUnsent(r.cause):
				hangs = true
				open = append(open, r)
			case class == HungUp && c.anew < maxFresh && a.repeatable(c.run):
				hangs = true
				r.copies++
				open = append(open, r)
			}
			r.silent = isTimeout(r.cause)
		}
		c.open = l.wanted(open)
		c.again++
		switch {
		case moves:
			c.moved++
			c.apart, c.run = true, nil
			l.node.cluster.ReloadState(ctx)
			_ = clock.Sleep(ctx, remapTime)
		case hangs:
			c.client = l.fresh
			c.anew++
			l.drain()
		}
	}
}

// wanted drops those whose callers have left: what was refused unseen is not sent again for them.
func (l *lane) wanted(open []*reply) []*reply {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.DeleteFunc(open, func(r *reply) bool { return r.attempt.stage != flying })
}

// repeatable reports whether a second copy of an attempt that was for a run can do no harm.
func (a *Attempt) repeatable(r *run) bool {
	return a.script.anywhere || a.script.strict || r != nil && r.id != ""
}

// send sends what is open, and reads what comes.
func (l *lane) send(ctx context.Context, c *flightCopy) {
	var d sender = c.client
	switch {
	case c.moved > 0:
		d = l.node.cluster
	case bound(c.open) && (c.run == nil || c.inFull):
		conn := withTimeout(c.client, c.client.Options().ReadTimeout).Conn()
		defer func() { _ = conn.Close() }()
		id, err := whichRun(ctx, conn)
		if err == nil {
			if c.run = l.meet(c, id); c.run == nil {
				err = errOtherRun
			}
		}
		if err != nil {
			for _, r := range c.open {
				r.cause = err
			}
			return
		}
		c.inFull = true
		d = conn
	}
	calls := bundle(c.room, c.open, c.how)
	transmit(ctx, d, calls)
	for _, call := range calls {
		call.read()
	}
}

// bound reports whether one of them is to be carried out by one run alone.
func bound(open []*reply) bool {
	for _, r := range open {
		if s := r.attempt.script; !s.anywhere && !s.strict {
			return true
		}
	}
	return false
}

// errOtherRun is the error of a copy at another run of the server than the first one was for.
var errOtherRun = errors.New("the server was restarted, or another has taken its place, before it answered")

// unsentError is why a request was not sent.
type unsentError struct{ error }

func (e unsentError) Unwrap() error { return e.error }

func isUnsent(err error) bool { return errors.As(err, new(unsentError)) }

// whichRun asks which run of a server is at the end of a connection; "": it does not say.
func whichRun(ctx context.Context, conn *redis.Conn) (id string, err error) {
	err = Recovered(func() error {
		text, err := conn.Info(ctx, "server").Result()
		id = ParseInfo("", text).RunID
		return err
	})
	switch {
	case Barred(err):
		return "", nil
	case err != nil:
		return "", unsentError{err}
	}
	return id, nil
}

// meet returns the run with this id if it may carry out c; nil: it may not.
func (l *lane) meet(c *flightCopy, id string) *run {
	l.mu.Lock()
	defer l.mu.Unlock()
	f := c.f
	if f.run != nil && (f.run.id != id || id == "") {
		if f.sent > 1 {
			return nil
		}
		for _, r := range c.open {
			if r.copies > 0 {
				return nil
			}
		}
	}
	f.run = l.runOf(id)
	return f.run
}

// runOf is the run with this id, which has just answered. l.mu is held.
func (l *lane) runOf(id string) *run {
	if l.run == nil || l.run.id != id {
		l.run = &run{id: id, met: time.Now(), scripts: map[*Script]*Script{}}
	}
	return l.run
}

// Meet notes which run of the server answers at the node's address, and returns the texts of the scripts by which it
// releases locks: a run that is given them, on a connection to it, need not be asked for each. It is not for Clusters.
func (n *Node) Meet(id string) (texts []string) {
	l := n.one
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range []*Script{n.release, n.undo, n.retain} {
		texts = append(texts, l.runOf(id).of(s).Text())
	}
	return texts
}

// drain takes connections out of the driver's pool that have ended: over TLS the driver notices that only by a
// request, and each request that meets one has to be sent twice (R26).
func (l *lane) drain() {
	l.mu.Lock()
	busy := l.draining
	l.draining = true
	l.mu.Unlock()
	if busy {
		return
	}
	l.node.Go(func() {
		for range l.server.PoolStats().IdleConns + 1 {
			ping := call{Cmd: redis.NewCmd(l.node.ctx, "ping")}
			if Classify(Recovered(func() error { return l.server.Process(l.node.ctx, ping) })) != HungUp {
				break
			}
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		l.draining = false
	})
}

// sender is the part of a go-redis client that flights need.
type sender interface {
	Process(ctx context.Context, cmd redis.Cmder) error
	Pipeline() redis.Pipeliner
}

// transmit returns when each call has its reply or error.
func transmit(ctx context.Context, d sender, calls []call) {
	// Alone, a Cluster's client would first ask for the list of all commands, which a user may not be allowed to; in
	// a pipeline it takes our word for where the keys are.
	if _, cluster := d.(*redis.ClusterClient); len(calls) == 1 && !cluster {
		if err := Recovered(func() error { return d.Process(ctx, calls[0]) }); err != nil {
			calls[0].SetErr(err)
		}
		return
	}
	pipe := d.Pipeline()
	for _, c := range calls {
		_ = pipe.Process(ctx, c)
	}
	if err := Recovered(func() error { _, err := pipe.Exec(ctx); return err }); err != nil {
		for _, c := range calls { // where there was no connection, the driver does not tell the commands
			if c.Err() == nil && c.Val() == nil {
				c.SetErr(err)
			}
		}
	}
}
