package redlock

import (
	"context"
	"sync"
	"time"

	"github.com/golockers/locker/internal/redisnode"
)

// attempt is one round of votes, and the lock if it was won. The steps are
// those of the Redlock description; see the package documentation.
type attempt struct {
	b       *Backend
	claim   redisnode.Claim
	own     string // what a refusal names the holder by, if it is a round of the same Acquire
	waiting bool
	since   time.Time     // before the first request was sent (R1)
	patient bool          // a second try, after a stall: with more time for each node
	healthy bool          // a quorum had answered when last asked
	changed chan struct{} // for run

	mu       sync.Mutex
	watching []chan struct{} // for releases
	seats    []seat
	won      bool
	gone     bool // released, and confirmed
	stage    stage
	timer    *time.Timer // ends what a node has not answered in time
	until    time.Time   // of the lease; renewals move it on
}

// stage is how far an attempt has come.
type stage int

const (
	voting  stage = iota
	raising       // a quorum has voted for us: the second phase of the token
	held
	given // lost, taken back or released: nothing of it may stay
)

// seat is what an attempt knows of one node.
type seat struct {
	vote  step // the first phase
	raise step // the second, with fencing
	err   error
	got   redisnode.Vote
	q     *question

	may  bool // the node may have the key
	late bool // a request may still be under way to it: a release has to make it void
	// freed is what the releases found: the key was there, or it was not.
	freed step
}

// step is how one question to one node stands.
type step int

const (
	idle step = iota
	pending
	yes
	no
	failed // no answer, in time or at all
)

func (b *Backend) newAttempt(claim redisnode.Claim, own string, waiting bool) *attempt {
	return &attempt{
		b: b, claim: claim.Prepared(), own: own, waiting: waiting,
		seats:   make([]seat, len(b.voters)),
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
	a.b.rounds.Add(1)
	timeout := a.b.nodeTimeout(a.claim.TTL)
	if a.patient {
		timeout += min(3*timeout, longStall)
	}
	asked := a.choose()
	for _, i := range asked {
		if a.b.voters[i].cold() {
			// Connecting, and perhaps TLS, take longer; and a quorum of nodes that are quicker ends the wait.
			timeout = max(timeout, min(time.Second, a.claim.TTL/3))
			break
		}
	}
	a.since = time.Now()
	a.mu.Lock()
	a.timer = time.AfterFunc(timeout, a.timeUp)
	a.mu.Unlock()
	for _, i := range asked {
		v := a.b.voters[i]
		v.vote(a.claim, a.waiting,
			func() bool { return a.wants(i) },
			func(q *question) { a.asked(i, q) },
			func(vote redisnode.Vote, err error) { a.voted(i, vote, err) })
	}
	for {
		if a.advance() {
			return
		}
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
	asked := make([]int, 0, len(a.seats))
	var skipped []int
	for i, v := range a.b.voters {
		if v.worthAsking(now) {
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
		a.seats[i].vote = pending
	}
	for _, i := range skipped {
		v := a.b.voters[i]
		a.seats[i].vote, a.seats[i].err = failed, v.why()
		v.unasked(a.claim.Name, Skipped, a.seats[i].err)
	}
	return asked
}

// wants reports whether the node's vote is still of use.
func (a *attempt) wants(i int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.stage != given && a.seats[i].vote == pending
}

// asked notes the question under way to a node.
func (a *attempt) asked(i int, q *question) {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := &a.seats[i]
	s.q = q
	if s.vote == failed && q.op == opVote && !s.may {
		// Its time was up while it was being sent.
		s.may, s.late = true, true
		if a.stage == given {
			go a.free(i)
		}
	}
}

// voted takes a node's vote, also one that comes after the decision: then it
// still counts to the nodes that have the key, or is taken back (step 4).
func (a *attempt) voted(i int, vote redisnode.Vote, err error) {
	v := a.b.voters[i]
	v.compare(vote.Left)
	a.mu.Lock()
	s := &a.seats[i]
	s.q = nil
	switch {
	case err != nil:
		if s.vote == pending {
			s.vote, s.err = failed, err
		}
		if !certain(err) {
			s.may, s.late = true, true
		}
	case vote.Granted:
		s.vote, s.got, s.may = yes, vote, true
	case vote.Void:
		s.vote, s.err = failed, errTakenBack
	case vote.Foreign:
		s.vote, s.err = failed, &foreignError{v.addr, redisnode.LockKey(a.claim.Name)}
	default:
		s.vote, s.got = no, vote
	}
	back := a.stage == given && s.may
	raise := (a.stage == raising || a.stage == held) && a.claim.Fenced && s.vote == yes && s.raise == idle
	if raise {
		s.raise = pending
	}
	a.stopTimer()
	a.tell()
	a.mu.Unlock()
	if back {
		a.free(i)
	}
	if raise {
		a.raise(i)
	}
}

// stopTimer stops the timer when nothing is pending. a.mu is held.
func (a *attempt) stopTimer() {
	for i := range a.seats {
		if s := &a.seats[i]; s.vote == pending || s.raise == pending {
			return
		}
	}
	if a.timer != nil {
		a.timer.Stop()
	}
}

// timeUp gives up the nodes that have not answered in time, whatever the driver
// is doing with their requests.
func (a *attempt) timeUp() {
	a.mu.Lock()
	var back []int
	for i := range a.seats {
		s := &a.seats[i]
		if s.vote != pending && s.raise != pending {
			continue
		}
		q := s.q
		a.mu.Unlock() // it calls Trace
		ok, sent := q.withdraw(errNoAnswer)
		a.mu.Lock()
		switch {
		case s.vote == pending:
			s.vote, s.err = failed, errNoAnswer
			if q == nil {
				break // still looking which server that is: wants says no from now on
			}
			if !ok || sent {
				s.may, s.late = true, true
			}
		case s.raise == pending:
			s.raise, s.err = failed, errNoAnswer
		}
		if a.stage == given && s.may {
			back = append(back, i)
		}
	}
	a.tell()
	a.mu.Unlock()
	for _, i := range back {
		a.free(i)
	}
}

// advance moves the attempt on as far as the answers allow, and reports whether
// its outcome is known.
func (a *attempt) advance() bool {
	a.mu.Lock()
	if a.stage == voting {
		t := a.tally()
		switch {
		case t.yes >= a.b.quorum && a.claim.Fenced:
			a.toRaising()
			return a.advance()
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
	for i := range a.seats {
		switch s := &a.seats[i]; {
		case s.raise == yes:
			ok++
		case s.raise == pending, s.raise == idle && s.vote == pending:
			open++
		}
	}
	if ok >= a.b.quorum {
		a.stage = held
	}
	return ok >= a.b.quorum || ok+open < a.b.quorum
}
