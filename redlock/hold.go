package redlock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/golockers/locker"
	"github.com/golockers/locker/internal/redisnode"
)

var _ locker.Hold = (*attempt)(nil)

// answers collects what nodes say to one question, until it is decided.
type answers struct {
	a       *attempt
	stateOf []redisnode.State
	got     []bool
	errs    []error
	qs      []*question
	over    bool          // a quorum has answered
	changed chan struct{} // capacity 1
}

// Renew implements [locker.Hold] (step 5): it holds if a quorum had the lock,
// and has it for another TTL. Nodes that have lost it are given it again
// afterwards, and do not count: another may have had the lock in between (R12).
func (a *attempt) Renew(ctx context.Context) (locker.Validity, error) {
	since := time.Now()
	n := len(a.seats)
	r := &answers{a: a, stateOf: make([]redisnode.State, n), got: make([]bool, n), errs: make([]error, n), qs: make([]*question, n), changed: make(chan struct{}, 1)}
	for i, v := range a.b.voters {
		q := ask(v, opRenew, a.claim.Name, func(cb func(redisnode.State, error)) redisnode.Question {
			return v.member.Renew(a.claim, cb)
		}, stateOutcome, func(st redisnode.State, err error) { a.renewed(r, i, st, err) })
		a.mu.Lock()
		r.qs[i] = q
		a.mu.Unlock()
	}
	timer := time.NewTimer(a.b.patience(a.claim.TTL))
	defer timer.Stop()
	// Stragglers may take a while longer; then their places in the queues are given up.
	defer func() {
		if _, _, open := a.count(r); open > 0 {
			time.AfterFunc(a.b.patience(a.claim.TTL), r.withdraw)
		}
	}()
	for waiting := true; waiting; {
		mine, lost, open := a.count(r)
		switch {
		case mine >= a.b.quorum:
			a.mu.Lock()
			if until := since.Add(a.claim.TTL - a.b.drift(a.claim.TTL)); until.After(a.until) {
				a.until = until
			}
			r.over = true
			a.mu.Unlock()
			a.repair(r)
			return a.validity(since), nil
		case lost > n-a.b.quorum:
			return locker.Validity{}, fmt.Errorf("redlock: %d of %d nodes do not have it any more: %w", lost, n, locker.ErrLost)
		case open == 0:
			waiting = false
			continue
		}
		select {
		case <-r.changed:
		case <-timer.C:
			waiting = false
		case <-ctx.Done():
			return locker.Validity{}, r.error("renew", ctx.Err())
		case <-a.b.closing:
			return locker.Validity{}, locker.ErrClosed
		}
	}
	return locker.Validity{}, r.error("renew", nil)
}

// renewed takes a node's answer. One that comes after a quorum's still counts
// for the repair.
func (a *attempt) renewed(r *answers, i int, st redisnode.State, err error) {
	a.mu.Lock()
	r.got[i], r.stateOf[i], r.errs[i] = true, st, err
	if err == nil && st == redisnode.Mine {
		a.seats[i].may = true
	}
	over := r.over
	a.mu.Unlock()
	if over {
		a.repair(r)
	}
	signal(r.changed)
}

func (a *attempt) count(r *answers) (mine, lost, open int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range a.seats {
		switch {
		case !r.got[i]:
			open++
		case r.errs[i] != nil:
		case r.stateOf[i] == redisnode.Mine:
			mine++
		default:
			lost++
		}
	}
	return mine, lost, open
}

// repair gives the lock again to nodes that do not have it, while a quorum of
// others has just renewed it and the lease is valid.
func (a *attempt) repair(r *answers) {
	var nodes []int
	a.mu.Lock()
	if a.stage == held && time.Now().Before(a.until) {
		for i := range a.seats {
			if r.got[i] && r.errs[i] == nil && r.stateOf[i] == redisnode.Gone {
				r.stateOf[i] = redisnode.Theirs // once
				nodes = append(nodes, i)
			}
		}
	}
	a.mu.Unlock()
	for _, i := range nodes {
		a.repairOne(i)
	}
}

// repairOne gives the lock again to one node, unless the restart guard keeps
// that out: what it voted for before its restart may still count for another,
// and would then count twice. So a repair needs a ballot, as a vote does.
func (a *attempt) repairOne(i int) {
	v := a.b.voters[i]
	v.mu.Lock()
	b := v.ballot
	v.mu.Unlock()
	if b == nil {
		v.look(func(error) {}) // for the next renewal's repair
		return
	}
	a.mu.Lock()
	if a.stage != held {
		a.mu.Unlock()
		return
	}
	a.seats[i].may, a.seats[i].late = true, true
	a.mu.Unlock()
	ask(v, opRepair, a.claim.Name, func(cb func(redisnode.State, error)) redisnode.Question {
		return v.member.Repair(b, a.claim, cb)
	}, stateOutcome, func(st redisnode.State, err error) {
		if errors.Is(err, redisnode.ErrRestarted) {
			v.forget(b)
			v.look(func(error) {})
		}
		a.mu.Lock()
		if err == nil || certain(err) {
			a.seats[i].late = false
		}
		back := a.stage == given
		a.mu.Unlock()
		if back {
			a.free(i)
		}
	})
}

func (r *answers) withdraw() {
	for i := range r.qs {
		r.a.mu.Lock()
		q := r.qs[i]
		r.a.mu.Unlock()
		q.withdraw(errNoAnswer)
	}
}

func (r *answers) error(op string, ctxErr error) error {
	r.a.mu.Lock()
	defer r.a.mu.Unlock()
	causes := make([]error, len(r.errs))
	for i := range causes {
		causes[i] = r.errs[i]
		if !r.got[i] {
			causes[i] = errNoAnswer
		}
	}
	err := r.a.b.quorumError(op, "", causes)
	if ctxErr != nil {
		return fmt.Errorf("%w: %w", ctxErr, err)
	}
	return err
}
