package redlock

import "github.com/golockers/locker/internal/redisnode"

// toRaising begins the second phase of the token: one more than the highest
// counter of the quorum, raised to the nodes' clocks, which the votes already
// are. a.mu is held and let go.
func (a *attempt) toRaising() {
	a.stage = raising
	var nodes []int
	var before uint64
	for i := range a.seats {
		s := &a.seats[i]
		if s.vote == yes {
			a.claim.Token = max(a.claim.Token, s.got.Token)
			if s.got.Raised {
				before = max(before, s.got.Token)
			}
			s.raise = pending
			nodes = append(nodes, i)
		}
	}
	if before != 0 {
		a.claim.Token = before // this very claim once more: the same token (R11)
	}
	a.timer.Reset(a.b.nodeTimeout(a.claim.TTL))
	a.mu.Unlock()
	for _, i := range nodes {
		a.raise(i)
	}
}

// raise asks a node that has voted for us for the second phase.
func (a *attempt) raise(i int) {
	v := a.b.voters[i]
	q := ask(v, opRaise, a.claim.Name, func(cb func(redisnode.State, error)) redisnode.Question {
		return v.member.Raise(a.claim, cb)
	}, stateOutcome, func(st redisnode.State, err error) {
		a.mu.Lock()
		s := &a.seats[i]
		switch {
		case err != nil:
			s.raise, s.err = failed, err
		case st == redisnode.Mine:
			s.raise = yes
		default:
			s.raise = no
		}
		a.stopTimer()
		a.tell()
		a.mu.Unlock()
	})
	a.asked(i, q)
}
