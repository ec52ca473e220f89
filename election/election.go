// Package election has one leader at a time among many candidates, by a lock on any
// [locker.Locker].
//
//	c := election.New(l, "scheduler", &election.Options{Address: "10.0.0.7:8080"})
//	err := c.Run(ctx, func(ctx context.Context, term uint64) error {
//		return schedule(ctx) // stop when ctx ends: another leads soon
//	})
//
// # A term
//
// Run waits for the lock, calls the function, and stands again when a term is over. The
// context of the function ends [Options].Margin before the lease does, and so before
// anyone else can lead, as far as the service guarantees it. The lock is released only
// when the function has returned. If it does not return in Options.Grace, the lease is
// not renewed any more and ends by itself, and another may lead although the function
// still runs. (A lock without a deadline, as in a file, is released then.)
//
// A leader can be paused at any instruction and go on when another leads. Only the
// resource can refuse what it then writes: the term is the fencing token of the lock,
// a number that rises with every term, or 0 where the service has no tokens. See
// package fencing.
//
// # Who leads
//
// [Candidate.IsLeader] asks nobody: it looks at the clock, as [locker.Lease.Err] does, and both are exact. The
// context of the function ends by a timer. When a process goes on that was stopped for longer than its
// lease (SIGCONT, a machine that has slept), that context can be seen alive for some microseconds, or where
// a machine has slept for up to a second, until the timer has run. So ask IsLeader before an act that only
// the leader may do. Everybody can ask the service,
// by [locker.Client.Inspect]: the label is the address of the leader, the token its term.
// The answer may be out of date: a leader has to know by itself, and
// whoever calls the leader at its address has to bear that it is none.
package election

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/golockers/locker"
	"github.com/golockers/locker/internal/clock"
)

// ErrSteppedDown is the cause of the end of a term's context after StepDown.
var ErrSteppedDown = errors.New("election: the leader has stepped down")

// Options are the settings of a Candidate. The zero value, or nil, means the defaults.
type Options struct {
	// Address is told to those who ask who leads: at most [locker.MaxLabelLen] bytes
	// of text. "": the label of the client.
	Address string

	// TTL is the time after which a dead leader's lock is free. 0: locker.DefaultTTL,
	// or the nearest that the service can do.
	TTL time.Duration

	// Margin is how long before the end of the lease the context of lead ends: the
	// time in which lead has to stop. It is at most half the TTL. 0: a fifth of it.
	Margin time.Duration

	// Grace is how long the lease is renewed for a lead that does not return after
	// the end of its context. 0: one TTL.
	Grace time.Duration

	_ struct{}
}

// The pauses before a candidate stands again: each is twice as long as the one before,
// until a term has lasted for a minute.
const (
	firstPause = 100 * time.Millisecond
	lastPause  = 10 * time.Second
	steadyTerm = time.Minute
)

// Candidate stands for election. Its methods may be called from any goroutine.
type Candidate struct {
	l    locker.Locker
	name string
	opts Options

	running atomic.Bool
	term    atomic.Pointer[term] // the last one; nil: it has not led yet
}

// New returns a Candidate for the lock on name, which Run makes stand for election.
func New(l locker.Locker, name string, opts *Options) *Candidate {
	c := &Candidate{l: l, name: name}
	if opts != nil {
		c.opts = *opts
	}
	if l == nil {
		c.l = locker.New(nil, nil) // whose errors say so
	}
	g := c.l.Guarantees()
	ttl := max(locker.DefaultTTL, g.MinTTL)
	c.opts.TTL = cmp.Or(c.opts.TTL, min(ttl, cmp.Or(g.MaxTTL, ttl)))
	c.opts.Margin = cmp.Or(c.opts.Margin, c.opts.TTL/5)
	c.opts.Grace = cmp.Or(c.opts.Grace, c.opts.TTL)
	return c
}

// Run stands for election until ctx ends, and calls lead for each term, in its own
// goroutine. A term ends with ctx, with the lease less the margin, or by StepDown; the
// context of lead ends at that moment, and its cause says why. Run then waits until
// lead has returned, releases the lock, and stands again if ctx has not ended. Where
// terms follow each other quickly, it pauses between them, up to 10 s.
//
// If lead returns before its context has ended, so does Run, with the same error. An
// outage of the service does not end Run; an error that cannot pass does, such as a
// wrong password. If ctx ended, the error is that of ctx.
func (c *Candidate) Run(ctx context.Context, lead func(ctx context.Context, term uint64) error) error {
	if c.opts.Margin < 0 || c.opts.Margin > c.opts.TTL/2 || c.opts.Grace < 0 {
		return fmt.Errorf("election: %w: a margin of %v and a grace of %v do not fit a TTL of %v: "+
			"give a margin up to half of it, and no negative ones",
			locker.ErrInvalid, c.opts.Margin, c.opts.Grace, c.opts.TTL)
	}
	if !c.running.CompareAndSwap(false, true) {
		return fmt.Errorf("election: %w: this candidate runs already", locker.ErrInvalid)
	}
	defer c.running.Store(false)
	for quick := 0; ; quick++ {
		lease, err := c.l.Lock(ctx, c.name, locker.TTL(c.opts.TTL), locker.NoRenew(), locker.Label(c.opts.Address))
		if err != nil && ctx.Err() == nil && !errors.Is(err, locker.ErrUnavailable) {
			return err
		}
		pause := time.Duration(0)
		if err == nil {
			t := &term{lease: lease, opts: &c.opts}
			began := time.Now()
			if err := c.serve(ctx, t, lead); !t.over {
				return err
			}
			pause = time.Duration(t.pause.Load())
			if clock.Elapsed(began, time.Now()) >= steadyTerm {
				quick = 0
			}
		}
		pause = max(pause, clock.Jitter(clock.BackOff(quick, firstPause, lastPause)))
		if err := clock.Sleep(ctx, pause); err != nil {
			return err
		}
	}
}

// IsLeader reports whether this candidate leads, and may act. It asks nobody.
func (c *Candidate) IsLeader() bool {
	t := c.term.Load()
	return t != nil && t.lasts()
}

// StepDown ends the present term, and returns before lead has. The candidate does not
// stand again for the pause, so that another gets to lead; if none stands, nobody
// leads meanwhile. StepDown does nothing, and returns false, if this candidate does
// not lead.
func (c *Candidate) StepDown(pause time.Duration) bool {
	t := c.term.Load()
	if t == nil || t.ctx.Err() != nil {
		return false
	}
	t.pause.Store(int64(pause))
	t.end(ErrSteppedDown)
	return true
}

// serve leads for one term, and releases the lock.
func (c *Candidate) serve(ctx context.Context, t *term, lead func(context.Context, uint64) error) error {
	inLease, cancel := t.lease.Context(ctx)
	defer cancel()
	t.ctx, t.end = context.WithCancelCause(inLease)
	renewing, stop := context.WithCancel(context.WithoutCancel(ctx))
	var keeping sync.WaitGroup
	defer func() { // also when lead panics
		t.over = t.ctx.Err() != nil
		t.end(nil)
		stop()
		keeping.Wait()
		late, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		_ = t.lease.Unlock(late) // what fails is tried again in the background, and ends with the TTL
	}()
	if !t.lasts() {
		t.end(t.late())
		return nil
	}
	keeping.Go(func() { t.renew(renewing) })
	keeping.Go(func() { t.watch(renewing, stop) })
	c.term.Store(t)
	number, _ := t.lease.Token()
	return lead(t.ctx, number)
}

// term is one time of leading.
type term struct {
	lease *locker.Lease
	opts  *Options
	ctx   context.Context // of lead
	end   context.CancelCauseFunc
	over  bool         // before lead had returned
	pause atomic.Int64 // of StepDown
}

// left is the time until the margin begins.
func (t *term) left() time.Duration {
	return clock.Left(t.lease.Until().Add(-t.opts.Margin), time.Now())
}

func (t *term) lasts() bool { return t.ctx.Err() == nil && t.lease.Err() == nil && t.left() > 0 }

func (t *term) late() error {
	return fmt.Errorf("election: the lease could not be renewed, and ends in %v or less: %w",
		t.opts.Margin, locker.ErrLost)
}

// watch ends lead's context when the margin begins, whatever a renewal waits for, and
// lets the lock go if lead has not returned in the time of grace after that.
func (t *term) watch(renewing context.Context, stop func()) {
	for t.lasts() {
		_ = clock.Sleep(t.ctx, min(t.left(), time.Second)) // a second: a machine may have slept
	}
	t.end(t.late())
	if clock.Sleep(renewing, t.opts.Grace) != nil {
		return // it has returned
	}
	stop()
	if clock.Endless(t.lease.Until()) {
		_ = t.lease.Unlock(renewing)
	}
}

// renew renews the lease until ctx ends. The lease is not renewed by itself, so that
// it ends if lead does not return.
func (t *term) renew(ctx context.Context) {
	every := t.opts.TTL / 3
	for wait := time.Duration(0); clock.Sleep(ctx, wait) == nil; {
		brief, cancel := context.WithTimeout(ctx, every)
		wait = every - clock.UpTo(every/4)
		if t.lease.Renew(brief) != nil {
			wait /= 4
		}
		cancel()
	}
}
