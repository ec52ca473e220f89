package redlock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/golockers/locker/internal/redisnode"
)

// voter is one node, with what is known of it.
type voter struct {
	b      *Backend
	index  int
	member *redisnode.Member
	addr   string
	num    numbers
	twin   atomic.Pointer[duplicateError] // as the last look found that was answered: the node leads to another's server

	mu         sync.Mutex
	runID      string            // of the run that was seen last
	ballot     *redisnode.Ballot // of that run; nil: look before it votes
	guardUntil time.Time         // it does not vote before
	durable    bool              // that run keeps what it has written over a restart
	voted      time.Time         // when that run was last known to run
	answered   time.Time         // when the node last answered anything
	restarts   uint64
	looking    bool
	looked     bool          // a look has ended, well or not
	waiting    []func(error) // for the look under way

	fails   int       // questions in a row without an answer
	probeAt time.Time // when to ask again, if it is sick
	lastErr error

	debts []debt
	timer *time.Timer // delivers debts; nil: not set
}

// A node is sick when it has not answered so many times in a row. It is then
// asked once per interval, until it answers; and more often only where there is
// no quorum without it.
const (
	sickAfter  = 3
	firstProbe = 100 * time.Millisecond
	lastProbe  = time.Second
	// maxInFlight bounds what one node can keep waiting.
	maxInFlight = 4096
)

func (v *voter) sick() bool { return v.fails >= sickAfter }

// worthAsking reports whether to ask the node without need. It says yes to one
// caller per interval for a sick one.
func (v *voter) worthAsking(now time.Time) bool {
	v.num.mu.Lock()
	full := v.num.flying >= maxInFlight
	v.num.mu.Unlock()
	v.mu.Lock()
	defer v.mu.Unlock()
	if full {
		return false
	}
	if !v.sick() {
		return true
	}
	if now.Before(v.probeAt) {
		return false
	}
	v.probeAt = now.Add(min(firstProbe<<min(v.fails-sickAfter, 10), lastProbe))
	return true
}

// cold reports that the node was never reached, nor found out of reach:
// connecting takes longer than asking.
func (v *voter) cold() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return !v.looked
}

// why says why the node is not asked.
func (v *voter) why() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.lastErr == nil {
		return errBusy
	}
	return fmt.Errorf("not asked, since it has not answered lately: %w", v.lastErr)
}

var errBusy = errors.New("not asked, since too many requests wait for it")

// note keeps account of an answer, or of none, and tells Trace.
func (v *voter) note(op, name string, o Outcome, began time.Time, err error) {
	took := time.Since(began)
	v.num.ended(op == opVote, o, took, true)
	answered := o <= Gone
	v.mu.Lock()
	var back bool
	switch {
	case answered:
		back = v.fails > 0 || v.lastErr != nil
		v.fails, v.lastErr = 0, nil
		v.answered = time.Now()
		if op == opVote && began.After(v.voted) {
			v.voted = began // it ran then, at least
		}
	case o == TimedOut || o == Failed:
		v.fails++
		v.lastErr = err
		if v.fails == sickAfter {
			v.probeAt = time.Now().Add(firstProbe)
		}
	}
	back = back && len(v.debts) > 0
	v.mu.Unlock()
	if back {
		v.deliver()
	}
	if t := v.b.opts.Trace; t != nil && t.Node != nil {
		t.Node(NodeEvent{Node: v.addr, Op: op, Name: name, Outcome: o, Took: took, Err: err})
	}
}

// unasked tells of a vote that the node was not asked for.
func (v *voter) unasked(name string, o Outcome, err error) {
	v.num.ended(true, o, 0, false)
	if t := v.b.opts.Trace; t != nil && t.Node != nil {
		t.Node(NodeEvent{Node: v.addr, Op: opVote, Name: name, Outcome: o, Err: err})
	}
}

// The names of questions, for Trace.
const (
	opVote    = "vote"
	opRaise   = "raise"
	opRenew   = "renew"
	opRepair  = "repair"
	opRelease = "release"
)

// question is one to a node, under way.
type question struct {
	v        *voter
	op, name string
	began    time.Time

	mu   sync.Mutex
	q    redisnode.Question
	sent bool // q is set
	over bool // answered or withdrawn
}

// ask sends a question: send is given the callback, and answer is called once
// unless withdraw is first. Neither may be called with an attempt's mutex held.
func ask[T any](v *voter, op, name string, send func(func(T, error)) redisnode.Question, outcome func(T) Outcome, answer func(T, error)) *question {
	q := &question{v: v, op: op, name: name, began: time.Now()}
	v.num.asked()
	rq := send(func(result T, err error) {
		if !q.end() {
			return
		}
		o := failedAs(err)
		if err == nil {
			o = outcome(result)
		}
		v.note(op, name, o, q.began, err)
		answer(result, err)
	})
	q.mu.Lock()
	q.q, q.sent = rq, true
	q.mu.Unlock()
	return q
}

// end reports whether the question was open.
func (q *question) end() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	first := !q.over
	q.over = true
	return first
}

// withdraw gives the question up with a time-out. ok is false if it was
// answered; sent says that it may have been carried out, or may yet be.
func (q *question) withdraw(err error) (ok, sent bool) {
	if q == nil {
		return false, false
	}
	q.mu.Lock()
	if q.over {
		q.mu.Unlock()
		return false, false
	}
	q.over, sent = true, true
	if q.sent {
		if gone, flew := q.q.Withdraw(); gone {
			sent = flew
		}
	}
	q.mu.Unlock()
	q.v.note(q.op, q.name, TimedOut, q.began, err)
	return true, sent
}

// failedAs says how a question without an answer failed.
func failedAs(err error) Outcome {
	if errors.Is(err, redisnode.ErrTimeout) || errors.Is(err, context.DeadlineExceeded) {
		return TimedOut
	}
	return Failed
}

// stateOutcome is for the answers of renew, raise, repair and release.
func stateOutcome(s redisnode.State) Outcome {
	switch s {
	case redisnode.Mine:
		return Granted
	case redisnode.Gone:
		return Gone
	}
	return Refused
}

// vote asks the node for its vote, after a look at the server where that is
// needed. It is not asked any more when wanted says no.
func (v *voter) vote(c redisnode.Claim, waiting bool, wanted func() bool, asked func(*question), answer func(redisnode.Vote, error)) {
	v.mu.Lock()
	b := v.ballot
	v.mu.Unlock()
	if b == nil {
		v.look(func(err error) {
			switch {
			case err != nil:
				var g *guardedError
				if errors.As(err, &g) {
					v.unasked(c.Name, Guarded, err)
				} else {
					v.unasked(c.Name, Failed, err)
				}
				answer(redisnode.Vote{}, err)
			case wanted():
				v.mu.Lock()
				b := v.ballot
				v.mu.Unlock()
				if b == nil { // restarted once more
					answer(redisnode.Vote{}, redisnode.ErrRestarted)
					return
				}
				v.cast(b, c, waiting, asked, answer)
			default:
				answer(redisnode.Vote{}, errNotWanted)
			}
		})
		return
	}
	v.cast(b, c, waiting, asked, func(vote redisnode.Vote, err error) {
		if !errors.Is(err, redisnode.ErrRestarted) {
			answer(vote, err)
			return
		}
		// It has forgotten its scripts, and perhaps more than that: look who it is before it votes.
		v.forget(b)
		if !wanted() {
			answer(redisnode.Vote{}, errNotWanted)
			return
		}
		go v.vote(c, waiting, wanted, asked, answer)
	})
}

// errNotWanted ends a vote that nobody waits for any more and that was not sent.
var errNotWanted = errors.New("not asked in time")

func (v *voter) cast(b *redisnode.Ballot, c redisnode.Claim, waiting bool, asked func(*question), answer func(redisnode.Vote, error)) {
	asked(ask(v, opVote, c.Name, func(cb func(redisnode.Vote, error)) redisnode.Question {
		return v.member.Vote(b, c, waiting, cb)
	}, func(vote redisnode.Vote) Outcome {
		if vote.Granted {
			return Granted
		}
		return Refused
	}, answer))
}
