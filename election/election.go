// Package election elects one leader at a time among many candidates, with a lock on any
// [locker.Locker].
//
//	c := election.New(l, "scheduler", &election.Options{Address: "10.0.0.7:8080"})
//	err := c.Run(ctx, func(ctx context.Context) error {
//		return schedule(ctx) // stop when ctx ends: another will lead soon
//	})
//
// # A term
//
// Run waits for the lock, calls the function, and stands again when the term has ended. The context of
// the function ends [Options].Margin before the lease does, and so before another candidate can lead,
// as far as the service guarantees it. The lock is released only when the function has returned. If it
// does not return within Options.Grace, the lease is no longer renewed and expires, and another may
// lead although the function still runs. (A lock without a deadline, as in a file, is released then.)
//
// A leader can be paused at any instruction and continue when another leads. Only the resource can
// refuse what it writes then. The term is the lock's fencing token, a number that increases with every
// term, or 0 if the service has no tokens. [FromContext] returns it, and so does TokenFor of package
// fencing.
//
// # Who leads
//
// [Candidate.IsLeader] sends no request: it checks the clocks, as [locker.Lease.Err] does, and both are
// exact. The context of the function ends by a timer. When a process resumes that was stopped for
// longer than its lease (SIGCONT, a machine that has slept), that context can seem alive until the
// timer has run, for some microseconds or, after a machine has slept, up to a second. So call IsLeader
// before an act that only the leader may do. Anybody can ask the service with [locker.Client.Inspect]:
// the label is the leader's address, the token its term. An example asks repeatedly to watch who leads.
// The answer may be out of date: a leader must check for itself, and a caller must expect that the
// process at the leader's address no longer leads.
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

// ErrSteppedDown is the cause with which StepDown ends a term's context.
var ErrSteppedDown = errors.New("election: the leader has stepped down")

// Options are the settings of a Candidate. The zero value, or nil, means the defaults.
type Options struct {
	// Address is shown by Inspect as the label of the leader: at most [locker.MaxLabelLen] bytes of
	// text. "": the client's label.
	Address string

	// TTL is the time after which a dead leader's lock is free. 0: locker.DefaultTTL, or the nearest
	// TTL that the service supports.
	TTL time.Duration

	// Margin is how long before the end of the lease the context of lead ends: the time that lead has
	// to stop. It is at most half the TTL. 0: a fifth of the TTL.
	Margin time.Duration

	// Grace is how long the lease is still renewed if lead does not return after its context has ended.
	// 0: one TTL.
	Grace time.Duration

	_ struct{}
}

// The pauses before a candidate stands again: each is twice as long as the previous one, until a term
// has lasted for a minute.
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
	term    atomic.Pointer[term] // the last term; nil: it has not led yet
}

// New returns a Candidate for the lock on name. It stands for election in Run.
func New(l locker.Locker, name string, opts *Options) *Candidate {
	c := &Candidate{l: l, name: name}
	if opts != nil {
		c.opts = *opts
	}
	if l == nil {
		c.l = (*locker.Client)(nil) // its errors say so
	}
	g, _ := locker.GuaranteesOf(c.l)
	ttl := max(locker.DefaultTTL, g.MinTTL)
	c.opts.TTL = cmp.Or(c.opts.TTL, min(ttl, cmp.Or(g.MaxTTL, ttl)))
	c.opts.Margin = cmp.Or(c.opts.Margin, c.opts.TTL/5)
	c.opts.Grace = cmp.Or(c.opts.Grace, c.opts.TTL)
	return c
}

// Run stands for election until ctx ends, and calls lead for each term, in Run's own goroutine. A term
// ends with ctx, a Margin before the lease ends, or by StepDown; the context of lead ends at that
// moment, and its cause says why. Run then waits until lead has returned, releases the lock, and stands
// again if ctx has not ended. If terms follow each other quickly, it pauses between them, up to 10 s.
//
// If lead returns before its context has ended, Run returns the same error. An outage of the service
// does not end Run; a permanent error does, such as a wrong password. After ctx has ended, Run returns
// nil, because it was asked to stop. If ctx ends during a term and lead returns an error of its own,
// Run returns that error.
func (c *Candidate) Run(ctx context.Context, lead func(ctx context.Context) error) error {
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
			switch err := c.serve(ctx, t, lead); {
			case !t.over:
				return err
			case ctx.Err() != nil && !stopped(ctx, err) && !stopped(t.ctx, err):
				return err
			}
			pause = time.Duration(t.pause.Load())
			if clock.Elapsed(began, time.Now()) >= steadyTerm {
				quick = 0
			}
		}
		pause = max(pause, clock.Jitter(clock.BackOff(quick, firstPause, lastPause)))
		if clock.Sleep(ctx, pause) != nil {
			return nil // it was asked to stop
		}
	}
}

// stopped reports whether err says that ctx has ended.
func stopped(ctx context.Context, err error) bool {
	return errors.Is(err, ctx.Err()) || errors.Is(err, context.Cause(ctx))
}

// FromContext returns the term of the election with this name, if ctx is the context of the function
// that leads, or derived from it. It returns false if ctx has no such term, or if its lease has ended.
// It uses the innermost lease of that name, from any Client. During the margin, when the function must
// stop, it still returns the term, for the last writes.
func FromContext(ctx context.Context, name string) (term uint64, ok bool) {
	lease, ok := locker.FromContext(ctx, name)
	if ok {
		term, _ = lease.Token()
	}
	return term, ok
}

// IsLeader reports whether this candidate leads, and may act. It sends no request.
func (c *Candidate) IsLeader() bool {
	t := c.term.Load()
	return t != nil && t.lasts()
}

// StepDown ends the present term, and returns before lead does. The candidate does not stand again
// during pause, so that another can lead; if no other stands, nobody leads meanwhile. If this candidate
// does not lead, StepDown does nothing and returns false.
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
func (c *Candidate) serve(ctx context.Context, t *term, lead func(context.Context) error) error {
	inLease, cancel := t.lease.Context(ctx)
	defer cancel()
	t.ctx, t.end = context.WithCancelCause(inLease)
	renewing, stop := context.WithCancel(context.WithoutCancel(ctx))
	var keeping sync.WaitGroup
	defer func() { // even if lead panics
		t.over = t.ctx.Err() != nil
		t.end(nil)
		stop()
		keeping.Wait()
		late, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		_ = t.lease.Unlock(late) // a failed release is retried in the background, and the lock ends with its TTL
	}()
	if !t.lasts() {
		t.end(t.late())
		return nil
	}
	keeping.Go(func() { t.renew(renewing) })
	keeping.Go(func() { t.watch(renewing, stop) })
	c.term.Store(t)
	return lead(t.ctx)
}

// term is one period of leading.
type term struct {
	lease *locker.Lease
	opts  *Options
	ctx   context.Context // of lead
	end   context.CancelCauseFunc
	over  bool         // its context ended before lead returned
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

// watch ends lead's context when the margin begins, even if a renewal hangs. If lead has not returned
// within the grace period, it stops renewing, or releases a lock without a deadline.
func (t *term) watch(renewing context.Context, stop func()) {
	for t.lasts() {
		_ = clock.Sleep(t.ctx, min(t.left(), time.Second)) // a second: a machine may have slept
	}
	t.end(t.late())
	if clock.Sleep(renewing, t.opts.Grace) != nil {
		return // lead has returned
	}
	stop()
	if clock.Endless(t.lease.Until()) {
		_ = t.lease.Unlock(renewing)
	}
}

// renew renews the lease until ctx ends. The Client does not renew it, so that it can end if lead does
// not return.
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
