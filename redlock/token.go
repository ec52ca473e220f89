package redlock

import (
	"context"
	"errors"
	"fmt"

	"github.com/golockers/locker/internal/redisconn"
)

// toRaising begins the second phase of the token: one more than the highest
// counter of the quorum, raised to the nodes' clocks, which the votes already
// are. a.mu is held and let go.
func (a *attempt) toRaising() {
	a.stage = raising
	var nodes []int
	var before uint64
	for i := range a.states {
		s := &a.states[i]
		if s.vote == yes {
			a.token = max(a.token, s.got.token)
			if s.got.raised {
				before = max(before, s.got.token)
			}
			s.raise = pending
			nodes = append(nodes, i)
		}
	}
	if before != 0 {
		a.token = before // this very claim once more: the same token (R11)
	}
	a.mu.Unlock()
	for _, i := range nodes {
		a.raise(i)
	}
}

// raise asks a node that has voted for us for the second phase.
func (a *attempt) raise(i int) {
	a.mu.Lock()
	claim, token := a.claim, a.token
	a.mu.Unlock()
	a.b.nodes[i].raise(&claim, token, a.limit, func(r reply) {
		a.mu.Lock()
		s := &a.states[i]
		switch {
		case r.err != nil:
			s.raise, s.err = failed, r.err
		case r.state == redisconn.Mine:
			s.raise = yes
		default:
			s.raise = no
		}
		a.tell()
		a.mu.Unlock()
	})
}

// maxToken is up to where a Lua number counts exactly, less one for the next.
const maxToken = 1<<53 - 2

// RaiseToken implements [locker.TokenRaiser], with fencing: a quorum's counters
// are raised, and renewals keep them there. The lease's own token stays as it was.
func (a *attempt) RaiseToken(ctx context.Context, token uint64) error {
	switch {
	case !a.claim.fenced:
		return fmt.Errorf("redlock: tokens are off, see Options.Fencing: %w", errors.ErrUnsupported)
	case token > maxToken:
		return invalid("the token %d is above %d, up to where Redis counts exactly", token, uint64(maxToken))
	}
	a.mu.Lock()
	lower := token <= a.token
	a.token = max(a.token, token)
	claim := a.claim
	a.mu.Unlock()
	if lower {
		return nil
	}
	return a.askAll(func(n *node, answer func(reply)) {
		n.raise(&claim, token, a.b.patience(claim.ttl), answer)
	}).wait(ctx, "raise the token")
}
