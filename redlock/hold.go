package redlock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/golockers/locker"
	"github.com/golockers/locker/internal/probe"
	"github.com/golockers/locker/internal/redisconn"
)

var (
	_ locker.Hold        = (*attempt)(nil)
	_ locker.TokenRaiser = (*attempt)(nil)
)

// As implements [locker.Aser].
func (a *attempt) As(target any) bool {
	remains, ok := target.(*probe.Remains)
	if ok {
		*remains = func(ctx context.Context) error {
			_, causes := each(ctx, a.b, func(ctx context.Context, n *node) (int64, error) {
				return n.conn.Client().Del(ctx, a.claim.keys.Quorum().(string), a.claim.keys.Wait().(string)).Result()
			})
			return errors.Join(causes...)
		}
	}
	return ok
}

// minHold notes how long the lock is kept at least: no renewal shortens that.
func (a *attempt) minHold(d time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.claim.atLeast = time.Now().Add(d)
}

// answers collects what nodes say to one question, until it is decided. Its
// fields are guarded by the attempt's mutex.
type answers struct {
	a       *attempt
	nodes   []nodeAnswer
	over    bool          // a quorum has renewed: what comes later still counts for the repair
	changed chan struct{} // capacity 1
}

type nodeAnswer struct {
	reply
	got bool
}

// askAll asks all nodes the same question.
func (a *attempt) askAll(ask func(n *node, answer func(reply))) *answers {
	r := &answers{a: a, nodes: make([]nodeAnswer, len(a.states)), changed: make(chan struct{}, 1)}
	for i, n := range a.b.nodes {
		ask(n, func(got reply) {
			a.mu.Lock()
			r.nodes[i] = nodeAnswer{got, true}
			if got.err == nil && got.state == redisconn.Mine && a.states[i].left == none {
				a.states[i].left = there
			}
			over := r.over
			a.mu.Unlock()
			if over {
				a.repair(r)
			}
			signal(r.changed)
		})
	}
	return r
}

// wait returns nil when a quorum has said that it has the lock. Its error matches
// ErrLost once no quorum can have it, and says why where it is not known.
func (r *answers) wait(ctx context.Context, op string) error {
	quorum := r.a.b.quorum
	for {
		mine, lost, open := r.count()
		switch {
		case mine >= quorum:
			return nil
		case lost > len(r.nodes)-quorum:
			return fmt.Errorf("redlock: %d of %d nodes do not have it any more: %w", lost, len(r.nodes),
				locker.ErrLost)
		case open == 0:
			return r.error(op, nil)
		}
		select {
		case <-r.changed:
		case <-ctx.Done():
			return r.error(op, ctx.Err())
		case <-r.a.b.closing:
			return locker.ErrClosed
		}
	}
}

func (r *answers) count() (mine, lost, open int) {
	r.a.mu.Lock()
	defer r.a.mu.Unlock()
	for _, n := range r.nodes {
		switch {
		case !n.got:
			open++
		case n.err != nil:
		case n.state == redisconn.Mine:
			mine++
		default:
			lost++
		}
	}
	return mine, lost, open
}

func (r *answers) error(op string, ctxErr error) error {
	r.a.mu.Lock()
	defer r.a.mu.Unlock()
	causes := make([]error, len(r.nodes))
	for i, n := range r.nodes {
		causes[i] = n.err
		if !n.got {
			causes[i] = errNoAnswer
		}
	}
	err := r.a.b.quorumError(op, "", causes)
	if ctxErr != nil {
		return fmt.Errorf("%w: %w", ctxErr, err)
	}
	return err
}

// Renew implements [locker.Hold] (step 5): it holds if a quorum had the lock,
// and has it for another TTL. Nodes that have lost it are given it again
// afterwards, and do not count: another may have had the lock in between (R12).
func (a *attempt) Renew(ctx context.Context) (locker.Validity, error) {
	since := time.Now()
	a.mu.Lock()
	c, token := a.claim, a.token
	a.mu.Unlock()
	r := a.askAll(func(n *node, answer func(reply)) {
		n.renew(&c, token, a.b.patience(c.ttl), answer)
	})
	if err := r.wait(ctx, "renew"); err != nil {
		return locker.Validity{}, err
	}
	a.mu.Lock()
	if until := since.Add(c.ttl - a.b.drift(c.ttl)); until.After(a.until) {
		a.until = until
	}
	r.over = true
	a.mu.Unlock()
	a.repair(r)
	return a.validity(since), nil
}

// repair gives the lock again to nodes that do not have it, while a quorum of
// others has just renewed it and the lease is valid.
func (a *attempt) repair(r *answers) {
	var nodes []int
	a.mu.Lock()
	if a.stage == held && time.Now().Before(a.until) {
		for i := range r.nodes {
			if n := &r.nodes[i]; n.got && n.err == nil && n.state == redisconn.Gone {
				n.state = redisconn.Theirs // once
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
// and would then count twice. So a repair needs scripts, as a vote does.
func (a *attempt) repairOne(i int) {
	n := a.b.nodes[i]
	b := n.currentScripts()
	if b == nil {
		n.look(func(*scripts, error) {}) // for the next renewal's repair
		return
	}
	a.mu.Lock()
	if a.stage != held {
		a.mu.Unlock()
		return
	}
	s := &a.states[i]
	// A vote that may still arrive is not over when the repair is.
	voting := s.left == late || s.vote == looked || s.vote == pending
	s.left = late
	c, token := a.claim, a.token
	a.mu.Unlock()
	n.repair(b, &c, token, a.b.patience(c.ttl), func(r reply) {
		if errors.Is(r.err, errRestarted) {
			n.forget(b)
			n.look(func(*scripts, error) {})
		}
		a.mu.Lock()
		if !voting && !r.repeated && (r.err == nil || certain(r.err)) {
			s.left = there
		}
		back := a.stage.given()
		a.mu.Unlock()
		if back {
			a.free(i)
		}
	})
}
