package redlock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/clock"
	"github.com/golockers/locker/internal/oneline"
	"github.com/golockers/locker/internal/probe"
	"github.com/golockers/locker/internal/redisnode"
)

// hold is what a round was for: the lock, if it was won, and in any case what the round may have left on the nodes.
type hold struct {
	b      *Backend
	keys   redisnode.Keys // with the owner value, which is compared whole (R9)
	ttl    time.Duration
	lasts  time.Duration // how long a vote for it lasts, unless it is released: the longer of TTL and MinHold
	waits  bool          // a release is to be published
	since  time.Time     // before the first vote was sent (R1)
	before []*hold       // of earlier rounds of the same Acquire: what they may have left

	undo driver.Undo

	mu      sync.Mutex
	stage   stage
	token   uint64    // with fencing
	floor   uint64    // what counters are to stand at: the token, or what RaiseToken has made of it
	until   time.Time // of the lease; renewals move it on
	minHold time.Duration
	keep    time.Time // nodes keep the lock up to here (MinHold), if they are given it again or when it is released; or zero
	places  []place
	refused *time.Timer // for nodes that have refused it: see complete
	owing   bool        // see owe
	// owedUntil is how long what was not removed is asked for again; zero: a release has always been answered.
	owedUntil time.Time
	doubted   bool // it was not known what a node had when the hold was given up
}

// stage is the life of a hold:
//
//	wanted -> held -> releasing -> released
//	     \      \      /  \ \-> kept -> releasing
//	      \------\----/----\--------> abandoned
type stage uint8

const (
	wanted    stage = iota // a round asks for it
	held                   // won
	releasing              // given back by its holder
	released               // and confirmed: it is removed
	kept                   // and confirmed: nobody has it, and nodes keep it
	abandoned              // not won, or undone: nothing of it may stay
)

// place is what a hold may have on one node. There are as many as held leases times nodes.
type place struct {
	left      leftover
	vote      *redisnode.Attempt // under way: it may put the lock there, unless it finds its value void
	void      bool               // it will
	release   *poll              // the release that waits for the vote; or nil
	repairing bool               // a repair is under way: one at a time, so that its end is known
	before    leftover           // what was there when the repair was sent, or a vote may have left since
	removing  int                // releases under way
	again     bool               // a release of before may have been carried out: to find nothing is no sign of a loss
	refuses   bool               // it has refused the vote, and is to be given the lock
	err       error              // why the last release was not answered
}

// leftover is what may be of a hold on one node:
//
//	nothing -> there -> late -> remains -> removed
//	       \-----------/    \-------------/
type leftover uint8

const (
	nothing leftover = iota // for certain
	there                   // the lock may be there
	late                    // and a request may still be under way, or one that removes it: the next has to make it void
	remains                 // it was released there, and is kept
	removed                 // nothing: it was released there
)

var (
	_ driver.Hold        = (*hold)(nil)
	_ driver.TokenRaiser = (*hold)(nil)
)

func (h *hold) validity() driver.Validity { return driver.Validity{Since: h.since, TTL: h.ttl} }

// voteAttempt asks for a vote. Keys that are not needed are the lock's own.
func (h *hold) voteAttempt(s *redisnode.Script) *redisnode.Attempt {
	k, note, counter := &h.keys, h.keys.Lock, h.keys.Lock
	if h.waits {
		note = k.Wait()
	}
	if h.b.opts.Fencing {
		counter = k.Quorum()
	}
	return s.Attempt(opVote, k.Name, nil, k.Void(), k.Lock, note, counter, k.Value(), redisnode.Milliseconds(h.lasts),
		h.asked()).Storing(&h.undo, h.lasts)
}

// keepAttempt renews, raises or repairs: see keep.lua. h.mu is not held.
func (h *hold) keepAttempt(s *redisnode.Script, op string, lasts time.Duration, floor uint64) *redisnode.Attempt {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.keepLocked(s, op, lasts, floor)
}

// keepLocked is keepAttempt where h.mu is held.
func (h *hold) keepLocked(s *redisnode.Script, op string, lasts time.Duration, floor uint64) *redisnode.Attempt {
	k, args := &h.keys, make([]any, 0, 8)
	args = append(args, k.Lock, k.Lock)
	if h.b.opts.Fencing {
		args[1] = k.Quorum()
	}
	if op == opRepair {
		args = append(args, k.Void())
	}
	args = append(args, k.Value(), redisnode.Milliseconds(lasts), decimal(h.token), decimal(max(h.token, h.floor, floor)),
		h.asked())
	return s.Attempt(op, k.Name, nil, args...).Storing(&h.undo, lasts)
}

// asked is the time of the request, as it stands in the lock's value: by the clock of this client.
func (h *hold) asked() string { return redisnode.Digits(uint64(h.since.UnixMicro())) }

// asks notes a vote that is to be sent; false: the round has ended.
func (h *hold) asks(i int, a *redisnode.Attempt) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.stage != wanted {
		return false
	}
	h.places[i].vote = a
	return true
}

// voted notes what a vote has left, whenever it comes.
func (h *hold) voted(i int, o redisnode.Outcome) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := &h.places[i]
	release := p.release
	p.vote, p.release = nil, nil
	switch {
	case p.void: // a release has removed what was there, or it has found its value void
		return
	case o.Copies > 1, o.Err != nil && o.Err.Unknown:
		p.left, p.before = max(p.left, late), late // whatever the answer to the last copy is
	case verdictOf(o) == yes:
		p.left = max(p.left, there) // late: a repair is under way
	case o.Err == nil && o.Answer.Code == redisnode.Held:
		p.refuses = true
		h.complete()
	}
	if h.stage > held {
		h.remove(i, release)
	}
}

// win makes the hold that of a winner.
func (h *hold) win() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stage, h.until = held, h.validity().Until()
	if h.minHold > 0 {
		h.keep = time.Now().Add(h.minHold)
	}
	h.complete()
}

// Nodes that have refused a lock which was won are asked again after firstLook, then after twice as long, and so on
// up to lastLook.
const (
	firstLook = 20 * time.Millisecond
	lastLook  = time.Second
)

// complete gives the lock to nodes that have refused it: what its holder before has released may be on its way to
// them. Until they have the lock, or until the first renewal, no node of a bare quorum can be missed. h.mu is held.
func (h *hold) complete() {
	if h.stage != held || h.refused != nil || !slices.ContainsFunc(h.places, func(p place) bool { return p.refuses }) {
		return
	}
	pause := firstLook
	h.refused = time.AfterFunc(pause, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		for i := range h.places {
			if h.stage == held && h.places[i].refuses {
				h.b.start(func() { h.give(i) })
			}
		}
		if pause *= 2; h.stage == held && pause < min(lastLook, h.ttl/3) {
			h.refused.Reset(pause)
		}
	})
}

// Renew implements [driver.Hold]: it holds if a quorum had the lock, and has it for another TTL. Nodes that have lost
// it are given it again afterwards, and do not count: another may have had the lock in between (R12).
func (h *hold) Renew(ctx context.Context) (driver.Validity, error) {
	v := driver.Validity{Since: time.Now(), TTL: h.ttl}
	p, renewed := h.b.newPoll(undecided), false
	p.then = func(i int, v verdict) {
		if renewed && v == gone {
			h.b.start(func() { h.give(i) })
		}
	}
	for i, n := range h.b.nodes {
		p.ask(i, h.keepAttempt(n.keep, opRenew, h.ttl, 0), verdictOf)
	}
	if err := h.has(ctx, "renew", p); err != nil {
		return driver.Validity{}, err
	}
	h.mu.Lock()
	if until := v.Until(); until.After(h.until) {
		h.until = until
	}
	h.mu.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	renewed = true
	for i := range p.said {
		p.then(i, p.said[i].verdict)
	}
	return v, nil
}

// undecided is a question to all about a lock that is held: a quorum has it, or none can.
func undecided(p *poll, c count) bool {
	return c[yes] >= p.b.quorum || c[no]+c[gone] > len(p.said)-p.b.quorum
}

// has returns nil if a quorum says that it has the lock. Its error matches ErrLost if no quorum can have it, and says
// why where it is not known.
func (h *hold) has(ctx context.Context, op string, p *poll) error {
	ctx, _ = clock.Parts(ctx) // each node's answer has a limit of its own
	c, n := p.wait(ctx, h.patience()), len(h.places)
	switch {
	case c[yes] >= h.b.quorum:
		return nil
	case c[no]+c[gone] > n-h.b.quorum:
		return fmt.Errorf("redlock: %d of %d nodes do not have it any more: %w", c[no]+c[gone], n, driver.ErrLost)
	}
	return p.failure(ctx, op)
}

// patience is how long each node is given for what is no vote.
func (h *hold) patience() time.Duration { return h.b.patience(h.ttl) }

// give gives the lock to one node while the lease is valid, unless the restart guard keeps that out: what it voted
// for before its restart may still count for another, and would then count twice. So a repair needs scripts, as a
// vote does. It reports whether the lock is held. It may wait for a look at the server.
func (h *hold) give(i int) (isHeld bool) {
	n, p := h.b.nodes[i], &h.places[i]
	h.mu.Lock()
	isHeld = h.stage == held
	h.mu.Unlock()
	if !isHeld {
		return false
	}
	scripts, err := n.ready(h.patience())
	if err != nil {
		return true
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.stage != held || !time.Now().Before(h.until) || p.repairing {
		return h.stage == held
	}
	lasts := max(h.ttl, time.Until(h.keep))
	p.before, p.left, p.repairing = p.left, late, true // before it is sent: a release has to make it void
	n.ask(h.keepLocked(scripts.repair, opRepair, lasts, 0), func(o redisnode.Outcome) {
		if o.Err != nil && errors.Is(o.Err, errRestarted) {
			n.forget(scripts)
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		p.repairing = false
		if o.Err == nil && o.Answer.Code == redisnode.Done {
			p.refuses = false
		}
		switch {
		case p.void, p.left != late: // it was removed meanwhile
		case h.stage > held:
			h.remove(i, nil)
		case o.Copies <= 1 && (o.Err == nil || !o.Err.Unknown):
			p.left = max(p.before, there) // nothing is under way any more, of this one
		}
	})
	return true
}

// RaiseToken implements [driver.TokenRaiser], with fencing: a quorum's counters are raised, and renewals keep them
// there. The lease's own token stays as it was, and decides which nodes admit the lease: what one raises it to is no
// right against a later holder.
func (h *hold) RaiseToken(ctx context.Context, token uint64) error {
	switch {
	case !h.b.opts.Fencing:
		return fmt.Errorf("redlock: tokens are off, see Options.Fencing: %w", errors.ErrUnsupported)
	case token > redisnode.MaxToken:
		return invalid("the token %d is above %d, up to where Redis counts exactly", token, uint64(redisnode.MaxToken))
	}
	p := h.b.newPoll(undecided)
	for i, n := range h.b.nodes {
		p.ask(i, h.keepAttempt(n.keep, opRaise, h.ttl, token), verdictOf)
	}
	err := h.has(ctx, "raise the token", p)
	if err == nil {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.floor = max(h.floor, token)
	}
	return err
}

// As implements [driver.Aser].
func (h *hold) As(target any) bool {
	remains, ok := target.(*probe.Remains)
	if ok {
		*remains = func(ctx context.Context) error {
			ask := func(ctx context.Context, n *node) (int64, error) {
				return n.Client().Del(ctx, h.keys.Quorum().(string), h.keys.Wait().(string)).Result()
			}
			_, causes, _ := fromAll(ctx, h.b, "remove", h.b.patience(0), ask)
			return oneline.Join(causes...)
		}
	}
	return ok
}
