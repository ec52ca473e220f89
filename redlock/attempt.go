package redlock

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/golockers/locker/internal/redisconn"
)

// attempt is one round of votes, and the lock if it was won. The steps are
// those of the Redlock description; see the package documentation.
type attempt struct {
	b       *Backend
	since   time.Time     // before the first request was sent (R1)
	limit   time.Duration // for each node's vote
	patient bool          // a second try, after a stall: with more time for each node
	healthy bool          // a quorum had answered when last asked
	changed chan struct{} // for run; nil once that has won

	mu       sync.Mutex
	claim    claim           // only atLeast ever changes
	token    uint64          // fenced: of the lock, from the second phase on
	watching []chan struct{} // for releases
	states   []nodeState
	stage    stage
	timer    *time.Timer // ends the wait for nodes that are being looked at
	until    time.Time   // of the lease; renewals move it on
}

// stage is how far an attempt has come:
//
//	voting -> (raising ->) held -> releasing -> released
//	     \___________\________\-> abandoned
type stage uint8

const (
	voting    stage = iota
	raising         // a quorum has voted for us: the second phase of the token
	held            // a quorum has agreed; won, if that was in time
	releasing       // given back by its holder
	released        // and confirmed
	abandoned       // not won: nothing of it may stay
)

// given reports that nothing of the attempt may stay.
func (s stage) given() bool { return s >= releasing }

// nodeState is what an attempt knows of one node.
type nodeState struct {
	vote  step     // the first phase
	raise step     // the second, with fencing
	freed step     // of a release: yes, the key was there; no, it was not
	again bool     // a release of before may have been carried out: to find nothing is no sign of a loss
	left  leftover // of all these there are as many as held leases times nodes: they are small
	err   error
	got   *vote           // of a round that is not won: a refusal, or with fencing a grant
	call  *redisconn.Call // the vote, for withdrawing it
}

// step is how one question to one node stands.
type step uint8

const (
	idle    step = iota
	looked       // first the node is looked at: it has no scripts yet
	pending      // asked
	yes
	no
	failed // no answer, in time or at all
)

// leftover is what an attempt may have left on a node.
type leftover uint8

const (
	none  leftover = iota // nothing, for certain
	there                 // the key may be there
	late                  // and a request may still be under way: a release has to make it void
)

func (b *Backend) newAttempt(c claim, patient bool) *attempt {
	return &attempt{
		b: b, claim: c, patient: patient,
		states:  make([]nodeState, len(b.nodes)),
		changed: make(chan struct{}, 1),
	}
}

// signal wakes whoever waits for c, which has a capacity of 1.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// tell wakes the goroutines that wait for the outcome, or for releases. a.mu is held.
func (a *attempt) tell() {
	if a.stage == voting {
		if t := a.tally(); t.yes < a.b.quorum && !t.hopeless(a.b.quorum) {
			return // nothing is decided
		}
	}
	signal(a.changed)
	for _, c := range a.watching {
		signal(c)
	}
}

// longStall is how much longer the nodes are given in a second try: time for a
// lost packet to be sent again.
const longStall = 250 * time.Millisecond

// run is steps 1 and 2: ask all nodes at the same time, done as soon as a
// quorum has granted. It returns when the outcome is known, when no answer can
// come any more, or when ctx is done.
func (a *attempt) run(ctx context.Context) {
	a.limit = a.b.nodeTimeout(a.claim.ttl)
	if a.patient {
		a.limit += min(3*a.limit, longStall)
	}
	asked, args := a.choose(), a.claim.voteArgs(a.b.life)
	a.since = time.Now()
	for _, i := range asked {
		a.ask(i, args)
	}
	for !a.advance() {
		select {
		case <-a.changed:
		case <-ctx.Done():
			return
		case <-a.b.closing:
			return
		}
	}
}

// choose returns whom to ask: not those that have not answered for a while,
// unless there is no quorum without them.
func (a *attempt) choose() []int {
	now := time.Now()
	asked := make([]int, 0, len(a.states))
	var skipped []int
	for i, n := range a.b.nodes {
		if n.worthAsking(now) {
			asked = append(asked, i)
		} else {
			skipped = append(skipped, i)
		}
	}
	a.healthy = len(asked) >= a.b.quorum
	if !a.healthy {
		asked, skipped = append(asked, skipped...), nil
	}
	for _, i := range asked {
		a.states[i].vote = looked
	}
	for _, i := range skipped {
		n := a.b.nodes[i]
		a.states[i].vote, a.states[i].err = failed, n.why()
	}
	return asked
}

// ask asks a node for its vote on args, if that is still of use, and first looks at
// its server where that is needed.
func (a *attempt) ask(i int, args []any) {
	n, s := a.b.nodes[i], &a.states[i]
	b := n.currentScripts()
	if b == nil {
		a.look(i, args)
		return
	}
	a.mu.Lock()
	if a.stage.given() || s.vote != looked {
		a.mu.Unlock()
		return
	}
	s.vote = pending
	c := b.vote.Call(opVote, a.claim.keys.Name, len(args)-voteArgc, args...)
	c.Limit = a.limit
	s.call = c
	n.inFlight.Add(1)
	started := n.conn.Start(c, func(c *redisconn.Call) { a.voted(i, b, c) })
	a.mu.Unlock()
	if !started {
		a.voted(i, b, c)
	}
}

// look has a node looked at, and then asked for its vote.
func (a *attempt) look(i int, args []any) {
	n := a.b.nodes[i]
	// Connecting, and perhaps TLS, take longer; and a quorum of nodes that are
	// quicker ends the wait.
	wait := a.limit
	if n.cold() {
		wait = max(wait, min(time.Second, a.claim.ttl/3))
	}
	a.mu.Lock()
	if a.timer == nil {
		a.timer = time.AfterFunc(wait, func() {
			for i := range a.states {
				a.notSeen(i, errNoAnswer)
			}
		})
	}
	a.mu.Unlock()
	n.look(func(_ *scripts, err error) {
		if err == nil {
			a.ask(i, args)
			return
		}
		a.notSeen(i, err)
	})
}

// notSeen gives up a node whose server could not be looked at, or not in time.
func (a *attempt) notSeen(i int, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if s := &a.states[i]; s.vote == looked {
		s.vote, s.err = failed, err
		a.tell()
	}
}

// voted takes a node's vote, also one that comes after the decision: then it
// still counts to the nodes that have the key, or is taken back (step 4).
func (a *attempt) voted(i int, b *scripts, c *redisconn.Call) {
	n, s := a.b.nodes[i], &a.states[i]
	v, err := n.readVote(c, a.claim.fenced)
	restarted := errors.Is(err, errRestarted)
	if restarted {
		n.forget(b)
	}
	a.mu.Lock()
	s.call = nil // from here on nobody withdraws it
	if c.Repeated() {
		s.left = late // whatever the answer: a copy may still arrive
	}
	c.Recycle()
	switch {
	case restarted && s.vote == pending && !a.stage.given():
		// It has forgotten its scripts, and perhaps more than that: look who it is before it votes.
		s.vote = looked
		args := a.claim.voteArgs(a.b.life)
		a.mu.Unlock()
		a.ask(i, args)
		return
	case err != nil:
		if s.vote == pending {
			s.vote, s.err = failed, err
		}
		if !certain(err) {
			s.left = late
		}
	case v.granted:
		s.vote, s.left = yes, max(s.left, there) // late: a repair is under way
		if a.claim.fenced {
			s.got = &v
		}
	case v.void:
		s.vote, s.err = failed, errTakenBack
	case v.foreign:
		s.vote, s.err = failed, &foreignError{n.addr, redisconn.LockKey(a.claim.keys.Name)}
	default:
		s.vote, s.got = no, &v
	}
	back := a.stage.given() && s.left != none
	raise := (a.stage == raising || a.stage == held) && a.claim.fenced && s.vote == yes && s.raise == idle
	if raise {
		s.raise = pending
	}
	a.tell()
	a.mu.Unlock()
	if back {
		a.free(i)
	}
	if raise {
		a.raise(i)
	}
}

// advance moves the attempt on as far as the answers allow, and reports whether
// its outcome is known.
func (a *attempt) advance() bool {
	a.mu.Lock()
	if a.stage == voting {
		t := a.tally()
		switch {
		case t.yes >= a.b.quorum && a.claim.fenced:
			a.toRaising()
			return false
		case t.yes >= a.b.quorum:
			a.stage = held
		}
		done := t.yes >= a.b.quorum || t.hopeless(a.b.quorum)
		a.mu.Unlock()
		return done
	}
	defer a.mu.Unlock()
	if a.stage != raising {
		return true
	}
	ok, open := 0, 0
	for i := range a.states {
		switch s := &a.states[i]; {
		case s.raise == yes:
			ok++
		case s.raise == pending, s.raise == idle && (s.vote == pending || s.vote == looked):
			open++
		}
	}
	if ok >= a.b.quorum {
		a.stage = held
	}
	return ok >= a.b.quorum || ok+open < a.b.quorum
}

// withdraw takes back votes that were not sent yet, of a round that is over: they
// never will be, nor be answered. a.mu is held.
func (a *attempt) withdraw() {
	if a.timer != nil {
		a.timer.Stop()
	}
	for i, n := range a.b.nodes {
		s := &a.states[i]
		unsent := s.vote == pending && s.call != nil && n.conn.Withdraw(s.call)
		if unsent {
			n.inFlight.Add(-1)
		}
		if unsent || s.vote == looked {
			s.vote, s.err = failed, errNoAnswer
		}
	}
}
