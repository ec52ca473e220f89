package redlock

import (
	"slices"
	"strings"
	"time"

	"github.com/golockers/locker"
)

// tally counts a round's votes.
type tally struct {
	yes, no, failed, pending int
	top                      int // how many refusals name the same other holder, at most
}

// ours reports that a refusal names a round before of this same Acquire: its
// vote was late, and is being taken back. That is nobody who holds the lock (R17).
// Behind the owner, a lock's value differs by round, and a refusal has
// only so much of it.
func (a *attempt) ours(holder string) bool {
	value, _ := a.claim.keys.Value().(string)
	return strings.HasPrefix(holder, value[:min(strings.Index(value, roundMark)+len(roundMark), holderLength)])
}

// tally counts the votes. a.mu is held.
func (a *attempt) tally() tally {
	var t tally
	var holders [8]struct {
		name string
		n    int
	}
	known := 0
	for i := range a.states {
		switch s := &a.states[i]; s.vote {
		case yes:
			t.yes++
		case pending, looked:
			t.pending++
		case failed:
			t.failed++
		case no:
			t.no++
			if a.ours(s.got.holder) {
				break
			}
			j := 0
			for j < known && holders[j].name != s.got.holder {
				j++
			}
			if j == len(holders) {
				break // that many holders: nobody has a quorum
			}
			if j == known {
				known++
				holders[j].name = s.got.holder
			}
			holders[j].n++
			t.top = max(t.top, holders[j].n)
		}
	}
	return t
}

// hopeless reports that there will be no quorum for us, and that nothing more
// is to be learned soon of who else has it.
func (t tally) hopeless(quorum int) bool {
	return t.yes+t.pending < quorum && (t.top >= quorum || t.pending == 0)
}

// verdict is what came of a round.
type verdict int

const (
	won        verdict = iota
	heldByOne          // another has a quorum
	perhaps            // another may have one: a node that may be of it did not answer
	split              // nobody has one
	outOfReach         // too few nodes answered
	tooLate            // won, but too slowly
)

// verdict says what came of the round, and if it was not won, makes sure that
// nothing of it stays (step 3).
func (a *attempt) verdict() verdict {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.stage == held {
		a.until = a.since.Add(a.claim.ttl - a.b.drift(a.claim.ttl))
		if time.Now().Before(a.until) {
			a.changed = nil // 10,000 locks that are held need none of this any more
			for i := range a.states {
				a.states[i].got = nil
			}
			return won
		}
	}
	was := a.stage
	a.stage = abandoned
	t := a.tally()
	switch {
	case was == held:
		return tooLate
	case t.top >= a.b.quorum:
		return heldByOne
	case t.yes+t.no < a.b.quorum, was == raising && a.broken() > len(a.states)-a.b.quorum:
		return outOfReach
	case t.no > 0 && t.top+t.failed+t.pending >= a.b.quorum:
		return perhaps
	}
	return split
}

// broken counts the nodes that did not answer one of the phases. a.mu is held.
func (a *attempt) broken() int {
	n := 0
	for i := range a.states {
		if s := &a.states[i]; s.vote == failed || s.raise == failed {
			n++
		}
	}
	return n
}

// heldError says "held", and when enough nodes for a quorum will be free unless
// holders renew.
func (a *attempt) heldError() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	free := 0
	var left []time.Duration
	for i := range a.states {
		switch s := &a.states[i]; {
		case s.vote == yes, s.vote == no && a.ours(s.got.holder):
			free++
		case s.vote == no && s.got.left >= 0:
			left = append(left, s.got.left)
		}
	}
	slices.Sort(left)
	e := &locker.HeldError{}
	if n := a.b.quorum - free; n > 0 && n <= len(left) {
		e.Remaining = max(left[n-1], time.Millisecond)
	}
	return e
}

// stalled reports that there could be a quorum, were it not for nodes that are
// just too slow.
func (a *attempt) stalled() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	down := 0
	for i := range a.states {
		if s := &a.states[i]; s.vote == failed && inTime(s.err) {
			down++
		}
	}
	return down <= len(a.states)-a.b.quorum
}

// unavailable is the error of a round that too few nodes answered.
func (a *attempt) unavailable(why string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	causes := make([]error, len(a.states))
	for i := range a.states {
		switch s := &a.states[i]; {
		case s.vote == pending, s.vote == looked:
			causes[i] = errNoAnswer
		case s.vote == failed, s.raise == failed:
			causes[i] = s.err
		}
	}
	return a.b.quorumError("acquire", why, causes)
}
