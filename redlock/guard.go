package redlock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/golockers/locker/internal/redisnode"
)

// guardedError is why a node that was restarted does not vote.
type guardedError struct {
	addr  string
	left  time.Duration
	whole time.Duration
}

func (e *guardedError) Error() string {
	return fmt.Sprintf("redis %s: restarted, and may have forgotten locks that are still held: it votes in %v (restart guard of %v)",
		e.addr, e.left.Round(10*time.Millisecond), e.whole)
}

// duplicateError is two nodes that are one.
type duplicateError struct{ a, b string }

func (e *duplicateError) Error() string {
	return fmt.Sprintf("nodes %s and %s are the same server, one vote would count twice: give each server once", e.a, e.b)
}

// forget drops the ballot of a server that does not know it any more.
func (v *voter) forget(b *redisnode.Ballot) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.ballot == b {
		v.ballot = nil
	}
}

// forgetOthers drops a ballot of any other run than that.
func (v *voter) forgetOthers(runID string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.ballot != nil && v.ballot.RunID != runID {
		v.ballot = nil
	}
}

// look finds out which server answers, and whether it may vote, once for all
// who ask at the same time. done is called with nil when it has a ballot.
func (v *voter) look(done func(error)) {
	v.mu.Lock()
	if left := time.Until(v.guardUntil); left > 0 && v.ballot == nil && !v.looking && v.runID != "" {
		// Nothing is gained by asking it again before. Should it have been
		// restarted meanwhile, the look after that will see it.
		err := &guardedError{v.addr, left, v.b.opts.MaxTTL}
		v.mu.Unlock()
		done(err)
		return
	}
	v.waiting = append(v.waiting, done)
	if v.looking {
		v.mu.Unlock()
		return
	}
	v.looking = true
	v.mu.Unlock()
	if !v.b.start(v.lookNow) {
		v.lookEnded(nil, redisnode.ErrClosed)
	}
}

func (v *voter) lookNow() {
	began := time.Now()
	ballot, err := v.identify()
	var guarded *guardedError
	var twice *duplicateError
	switch {
	case err == nil, errors.As(err, &guarded), errors.As(err, &twice):
		v.mu.Lock()
		v.fails, v.lastErr = 0, nil
		v.mu.Unlock()
	default:
		v.mu.Lock()
		v.fails++
		v.lastErr = err
		if v.fails == sickAfter {
			v.probeAt = began.Add(firstProbe)
		}
		v.mu.Unlock()
	}
	v.lookEnded(ballot, err)
}

func (v *voter) lookEnded(ballot *redisnode.Ballot, err error) {
	v.mu.Lock()
	waiting := v.waiting
	v.waiting, v.looking, v.looked = nil, false, true
	if err == nil {
		v.ballot = ballot
	}
	v.mu.Unlock()
	for _, done := range waiting {
		done(err)
	}
}

// identify asks the server who it is, decides whether it may vote, and gives
// it its ballot.
func (v *voter) identify() (*redisnode.Ballot, error) {
	ctx, cancel := context.WithTimeout(context.Background(), requestTimeout)
	defer cancel()
	asked := time.Now()
	id, err := v.member.Identify(ctx)
	if err != nil {
		var e *redisnode.Error
		if v.b.opts.NoRestartGuard && errors.As(err, &e) && e.Refused {
			return redisnode.AnyBallot(), nil // it may not run INFO: neither does it have to
		}
		return nil, err
	}
	v.forgetOthers(id.RunID)
	if err := v.b.register(v, id.RunID); err != nil {
		return nil, err
	}
	if err := v.guard(id, asked); err != nil {
		return nil, err
	}
	return v.member.Prepare(ctx, id)
}

// guard is the restart guard: a server that was restarted may have forgotten a
// lock that is still held, and would vote for a second holder. Every lock that
// it may have forgotten is over when it has been up for the longest TTL.
//
// Its uptime is counted from what it says, by its wall clock; and where that
// cannot be, since another run of it was heard of later, from now.
func (v *voter) guard(id redisnode.Identity, asked time.Time) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.runID != id.RunID {
		// Two whole seconds make the uptime, that of the start and that of now, so it is up to one too long.
		up, durable := max(id.Uptime-time.Second, 0), id.Durable
		if v.runID != "" {
			v.restarts++
			if up > asked.Sub(v.voted) {
				up = 0 // its clock was stepped forward
			}
			durable = durable && v.durable // what counts is what the run before has kept
		}
		v.runID, v.durable = id.RunID, id.Durable
		v.guardUntil = time.Time{}
		if whole := v.b.opts.MaxTTL; !v.b.opts.NoRestartGuard && !durable && up < whole {
			// From the end of the look, not from its beginning: later is safer.
			v.guardUntil = time.Now().Add(whole - up)
			v.b.opts.Logger.Info("redlock: a node was started lately and does not vote yet", "node", v.addr, "for", whole-up)
		}
	}
	v.voted = asked
	if left := time.Until(v.guardUntil); left > 0 {
		return &guardedError{v.addr, left, v.b.opts.MaxTTL}
	}
	return nil
}

// compare warns, once, of a lock that lasts longer than any should: then this
// client's guard is too short for the locks of another.
func (v *voter) compare(left time.Duration) {
	o := &v.b.opts
	if left <= o.MaxTTL+time.Millisecond || o.NoRestartGuard || v.b.warned.Swap(true) {
		return
	}
	o.Logger.Warn("redlock: a lock lasts longer than MaxTTL: another client has a longer one, or a clock was set back; the restart guard needs the same MaxTTL in all clients",
		"node", v.addr, "left", left, "MaxTTL", o.MaxTTL)
}

// register notes which server a node leads to, and refuses one that another
// node leads to: that node is its twin, and one vote would count twice.
//
// What the node led to before is free for others from here on, so it must have
// no ballot of that any more. Without that, two servers that changed addresses
// would be taken for each other's twins for ever: now whichever node is looked at
// last finds its server free, and the other does with its next look.
func (b *Backend) register(v *voter, runID string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for id, i := range b.runs {
		if i == v.index && id != runID {
			delete(b.runs, id)
		}
	}
	if i, ok := b.runs[runID]; ok && i != v.index {
		d := &duplicateError{b.voters[i].addr, v.addr}
		v.twin.Store(d)
		return d
	}
	v.twin.Store(nil)
	b.runs[runID] = v.index
	return nil
}
