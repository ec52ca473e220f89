package redlock

import (
	"context"
	"sync"
	"time"

	"github.com/golockers/locker/internal/redisnode"
)

// A poll is one question that the nodes are asked at the same time, and the count of what they have said. A round of
// votes, the second phase of a token, a renewal and a release are polls; they differ in what they send and in when
// their count decides.
type poll struct {
	b       *Backend
	decides func(p *poll, c count) bool // called with mu held
	then    func(i int, v verdict)      // the same, when a node has said something; or nil
	decided chan struct{}               // closed, once
	before  *poll                       // which is still asked for what this one's nodes are asked next; or nil

	mu   sync.Mutex
	said []said
	over bool
}

// said is what one node has said.
type said struct {
	verdict verdict
	attempt *redisnode.Attempt // while it is open; nil: its server is looked at first
	answer  redisnode.Answer
	err     error
}

// verdict is what an answer means to the count:
//
//	open -> yes, no, gone, failed
//	          failed -> yes, no, gone (late)
type verdict uint8

const (
	open verdict = iota // also before it is asked: a count over some of the nodes decides nothing
	yes
	no     // another has it, or has had it since
	gone   // nobody has it
	failed // no answer, in time or at all
	unasked
)

// count is how many have said what.
type count [unasked + 1]int

func (b *Backend) newPoll(decides func(p *poll, c count) bool) *poll {
	return &poll{b: b, decides: decides, decided: make(chan struct{}), said: make([]said, len(b.nodes))}
}

// quorum decides a poll in which a quorum has to say yes.
func quorum(p *poll, c count) bool { return c[yes] >= p.b.quorum || c[yes]+c[open] < p.b.quorum }

// everybody decides a poll in which each node counts.
func everybody(*poll, count) bool { return false }

// ask asks a node. judge notes what it says, whenever that comes, before it is counted as the verdict: open where the
// node is asked again.
func (p *poll) ask(i int, a *redisnode.Attempt, judge func(redisnode.Outcome) verdict) {
	p.mu.Lock()
	p.said[i] = said{attempt: a}
	p.mu.Unlock()
	n, name := p.b.nodes[i], a.Name
	n.ask(a, func(o redisnode.Outcome) {
		s := said{answer: o.Answer, verdict: judge(o)}
		switch {
		case o.Err != nil:
			s.err = o.Err
		case o.Answer.Code == redisnode.Foreign:
			s.err = n.Foreign(name)
		case o.Answer.Code == redisnode.Void:
			s.err = errTakenBack
		}
		if s.verdict != open {
			p.put(i, s)
		}
	})
}

// The names of questions, for errors.
const (
	opVote    = "vote"
	opRaise   = "raise"
	opRenew   = "renew"
	opRepair  = "repair"
	opRelease = "release"
)

// ask sends a question, which does not wait: a hung node must not pile up goroutines. told is called once, unless it
// is withdrawn, and must not block.
func (n *node) ask(a *redisnode.Attempt, told func(redisnode.Outcome)) {
	n.inFlight.Add(1)
	n.Start(a, func(a *redisnode.Attempt) {
		o := a.Outcome
		if o.Err == nil && !expected(a.Op, o.Answer, n.b.opts.Fencing) {
			o.Err = n.Unexpected(a.Op, o.Answer)
		} else if o.Err != nil && redisnode.Classify(o.Err.Err) == redisnode.Forgotten {
			o.Err.Err = errRestarted
		}
		defer n.inFlight.Add(-1) // Close waits for what follows from it, too
		if o.Err != nil {
			n.note(a.Op, o.Since, o.Err)
		} else {
			n.note(a.Op, o.Since, nil)
		}
		told(o)
	})
}

// withdraw takes a question back that was not sent, and reports whether it was not.
func (n *node) withdraw(a *redisnode.Attempt) bool {
	ok := n.Withdraw(a)
	if ok {
		n.inFlight.Add(-1)
	}
	return ok
}

// expected reads an answer strictly: what the scripts do not answer to this question is none.
func expected(op string, a redisnode.Answer, fenced bool) bool {
	if a.Parts != nil {
		return false
	}
	token := op == opVote && (a.N == 1 || fenced && a.N > 0 && a.N <= redisnode.MaxToken+1)
	switch a.Code {
	case redisnode.Done:
		return a.N == 1 || token
	case redisnode.Again:
		return token && (a.Text == "" || a.Text == "raised" && fenced)
	case redisnode.Held:
		return op == opVote && a.N >= redisnode.NoKey && a.Text != "" && len(a.Text) <= holderLength
	case redisnode.Void:
		return (op == opVote || op == opRepair) && a.N == 0
	case redisnode.Foreign:
		return op == opVote && a.N >= redisnode.NoKey
	case redisnode.Gone, redisnode.Theirs:
		return op != opVote && a.N == 0
	case redisnode.Overtaken:
		return op != opVote && op != opRelease && a.N == 0
	case redisnode.Turn, redisnode.Sharers, redisnode.Full:
	}
	return false
}

// holderLength is how much of a holder's value a refusal names (vote.lua).
const holderLength = 16

// verdictOf is what the answer of a script says of the caller's lock.
func verdictOf(o redisnode.Outcome) verdict {
	if o.Err != nil {
		return failed
	}
	switch o.Answer.Code {
	case redisnode.Done, redisnode.Again:
		return yes
	case redisnode.Held, redisnode.Theirs, redisnode.Overtaken:
		return no
	case redisnode.Gone:
		return gone
	}
	return failed
}

func (p *poll) put(i int, s said) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.set(i, s)
	p.look()
}

// set notes what a node has said, or that it has not. p.mu is held.
func (p *poll) set(i int, s said) {
	p.said[i] = s
	if p.then != nil {
		p.then(i, s.verdict)
	}
}

// look ends the wait if the count decides. p.mu is held.
func (p *poll) look() {
	if c := p.count(); !p.over && (c[open] == 0 || p.decides(p, c)) {
		p.over = true
		close(p.decided)
	}
}

// count is called with p.mu held.
func (p *poll) count() (c count) {
	for i := range p.said {
		c[p.said[i].verdict]++
	}
	return c
}

// wait returns when the count has decided, or ctx or the Backend has ended. A node that has not answered for so long
// since it was sent the question has failed; time in our own queues does not count (R21), nor does what this very
// process was late by.
func (p *poll) wait(ctx context.Context, limit time.Duration) count {
	timer, due := time.NewTimer(limit), time.Now().Add(limit)
	defer timer.Stop()
	for over := false; !over; {
		select {
		case <-p.decided:
			over = true
		case <-ctx.Done():
			over = true
		case <-p.b.ctx.Done():
			over = true
		case now := <-timer.C:
			limit += max(0, time.Since(due))
			next := limit
			if p.before != nil { // no node is open here for longer than there
				next = p.before.expire(limit)
			}
			next = min(next, p.expire(limit))
			due = now.Add(next)
			timer.Reset(next)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.count()
}

// expire counts those as failed that have had their time, and returns when to look again.
func (p *poll) expire(limit time.Duration) time.Duration {
	type late struct {
		n    *node
		sent time.Time
	}
	var failures []late
	p.mu.Lock()
	next := limit
	for i := range p.said {
		s := &p.said[i]
		if s.verdict != open || s.attempt == nil {
			continue
		}
		sent, patience := p.b.nodes[i].Sent(s.attempt, limit)
		if sent.IsZero() {
			continue
		} else if left := patience - time.Since(sent); left > 0 {
			next = min(next, left)
			continue
		}
		p.set(i, said{verdict: failed, attempt: s.attempt, err: errNoAnswer})
		failures = append(failures, late{p.b.nodes[i], sent})
	}
	p.look()
	p.mu.Unlock()
	for _, f := range failures {
		f.n.note("", f.sent, errNoAnswer)
	}
	return max(next, time.Millisecond)
}

// causes returns why each node has not said what it was asked for; nil: it has. p.mu is not held.
func (p *poll) causes() []error {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := make([]error, len(p.said))
	for i := range p.said {
		switch s := &p.said[i]; s.verdict {
		case open:
			all[i] = errNoAnswer
		case failed:
			all[i] = s.err
		case yes, no, gone, unasked:
		}
	}
	return all
}

// failure is the error of a poll that too few nodes have answered.
func (p *poll) failure(ctx context.Context, op string) error {
	return p.b.failure(ctx, p.b.quorumError(op, "", p.causes()))
}
