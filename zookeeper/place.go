package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/golockers/locker"
	"github.com/golockers/locker/internal/clock"
)

// place is one attempt's place in the queue of a lock: a node of one session.
// It is a [locker.Hold] when it was granted, and beside an error when there
// may be something to take back.
type place struct {
	s     *session
	dir   string // the lock's node
	id    string // marks the attempt and no other
	label string
	lost  func()

	passed map[string]bool // nodes in the queue that are of no session, and are passed over
	raised bool            // somebody before has raised the tokens, or may have
	tokens tokens          // as they were when the lock was granted

	mu      sync.Mutex
	life    life
	path    string // the node, once it is known
	czxid   int64
	guarded bool        // the watch on the node is set
	guard   *time.Timer // sets it for a holder
	untold  func() bool // the end of the session is not told to the holder any more
}

// life is what became of a place's node:
//
//	absent ──create sent──> unknown ──answered──> queued ──granted──> held
//	   ^                       │                    │ │                 │ │
//	   └─refused, or not found─┘                    │ └───gone by itself┼─┴──> lost
//	                                                └──────deleted──────┴────> freed
//
// The end of the session ends it, in whatever state it is.
type life int

const (
	absent  life = iota // there is none, and none can come
	unknown             // its creation was not answered
	queued              // it is there
	held                // and the lock is ours
	lost                // it is gone, and not by us
	freed               // it is gone by us
)

// Acquire implements [locker.Backend]. It waits in the lock's queue if
// req.Wait is set.
func (b *Backend) Acquire(ctx context.Context, req locker.Request) (locker.Grant, error) {
	s, err := b.session(ctx)
	if err != nil {
		return locker.Grant{}, err
	}
	if _, timeout := s.granted(); req.TTL > timeout {
		return locker.Grant{}, fmt.Errorf("zookeeper %s: a TTL of %v is asked for, and the servers grant sessions of %v: ask for less, or raise their maxSessionTimeout: %w",
			b, req.TTL, timeout, errors.ErrUnsupported)
	}
	p := &place{s: s, dir: b.dir(req.Name), id: req.Owner, label: req.Label, lost: req.Lost, tokens: tokens{version: -1}}
	since := time.Now()
	if !req.Wait {
		if err := p.peek(ctx); err != nil {
			return locker.Grant{}, err
		}
	}
	alone, err := p.enter(ctx)
	if err == nil && !alone {
		since, err = p.queue(ctx, req)
	}
	var grant locker.Grant
	if err == nil {
		grant, err = p.grant(ctx, since)
	}
	if life, _ := p.state(); err == nil || s.isOver() || life != unknown && life != queued {
		return grant, err
	}
	return locker.Grant{Hold: p}, err
}

// peek returns a *HeldError if somebody is in the queue: a caller who does not
// wait takes no place then. Its node would be in the way of those who come
// after, for a session's timeout if it is cut off just then. A server that lags
// behind may show a holder who has left: what it shows is looked at again.
// Between this look and the node somebody else may come, who is then before it.
func (p *place) peek(ctx context.Context) error {
	for _, sync := range []bool{false, true} {
		q, err := p.s.queueOf(ctx, p.dir, p.id, sync)
		if err != nil {
			return err
		}
		// With a node of this very attempt there, it is a repeated request (R11).
		if q.length == 0 || q.found {
			return nil
		}
		if sync {
			if before, err := p.others(ctx, q.nodes); err != nil || len(before) == 0 {
				return err
			}
		}
	}
	return &locker.HeldError{}
}

// enter creates the node, and returns whether it is alone in the queue. In the same
// transaction it writes to the lock's node: the answer tells how many nodes there are
// in the queue, and the number of the transaction, which is the czxid of the new one.
// So a lock that nobody else wants costs this one request. (With a look at the queue
// as a request of its own, and one at the node for the czxid, pairs per second of 256
// callers fell to 0.55 of those of a bare creation and deletion, from 0.95.)
func (p *place) enter(ctx context.Context) (alone bool, err error) {
	create := func(c *zk.Conn) ([]zk.MultiResponse, error) {
		p.become(unknown)
		return c.Multi(
			&zk.CreateRequest{Path: p.dir + "/" + p.id + lockMark, Data: []byte(p.label), Acl: p.s.backend.acl, Flags: zk.FlagEphemeral | zk.FlagSequence},
			&zk.SetDataRequest{Path: p.dir, Version: -1})
	}
	answer, err := ask(ctx, p.s, create)
	for gone(err) {
		// Never used, or a container that was empty and has been reaped. The caller
		// may leave now, and there will be a node in it all the same: the service
		// removes only containers that have had one.
		if err = p.s.makeParents(p.dir); err == nil {
			answer, err = ask(p.s.ctx, p.s, create)
		}
	}
	switch {
	case isRefusal(err):
		p.become(absent)
		return false, err
	case err != nil:
		return false, err
	case len(answer) != 2 || answer[1].Stat == nil:
		return false, fmt.Errorf("zookeeper: the answer to a creation is not one: %w", locker.ErrUnavailable)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.life, p.path, p.czxid = queued, answer[0].String, answer[1].Stat.Mzxid
	if n, _ := parseNode(path.Base(p.path)); n.spent() {
		return false, fmt.Errorf("zookeeper: %s has had two thousand million nodes, and the servers count no further: remove it at a time when nobody locks the name (and raise its tokens again if they were raised): %w", p.dir, locker.ErrRefused)
	}
	return answer[1].Stat.NumChildren == 1, nil
}

// become moves the place on, unless its node is gone.
func (p *place) become(to life) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.life < lost {
		p.life = to
	}
}

// state returns the place's life, and its node.
func (p *place) state() (life, string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.life, p.path
}

// queueOf returns the queue of a lock; it is empty if the lock's node does not
// exist.
func (s *session) queueOf(ctx context.Context, dir, id string, sync bool) (queue, error) {
	children, err := s.children(ctx, dir, sync)
	if err != nil && !gone(err) {
		return queue{}, err
	}
	return readQueue(children, id), nil
}

// children returns the names of the nodes below one. A server that this session has
// just come to may lag behind: with sync, it first catches up with all that was done
// before.
func (s *session) children(ctx context.Context, dir string, sync bool) ([]string, error) {
	return ask(ctx, s, func(c *zk.Conn) ([]string, error) {
		if sync {
			if _, err := c.Sync(dir); err != nil {
				return nil, err
			}
		}
		children, _, err := c.Children(dir)
		return children, err
	})
}

// queue waits until the place is the first. It returns when that was known.
func (p *place) queue(ctx context.Context, req locker.Request) (time.Time, error) {
	for held := false; ; {
		since := time.Now()
		before, err := p.before(ctx)
		if err == nil && !req.Wait {
			before, err = p.others(ctx, before)
		}
		switch {
		case err == nil && len(before) == 0:
			return since, nil
		case err == nil && !req.Wait:
			_ = p.remove(ctx, false) // what is not known to be gone then is taken back
			return since, &locker.HeldError{}
		case err == nil:
			held = true
			if req.Queued != nil {
				req.Queued()
			}
			var first bool
			if first, err = p.await(ctx, before); first {
				return time.Now(), err
			}
		}
		switch {
		case err == nil:
		case ctx.Err() != nil && held:
			return since, fmt.Errorf("%w (%w)", locker.ErrHeld, ctx.Err())
		case ctx.Err() != nil, !held, p.s.isOver(), !errors.Is(err, locker.ErrUnavailable), errors.Is(err, errPlaceLost):
			return since, err
		default:
			// An outage while waiting: the place is kept for as long as the session
			// may live, and looked at again after it.
			if p.s.sitOut(ctx) != nil && ctx.Err() == nil {
				return since, err
			}
		}
	}
}

// errPlaceLost says that somebody has removed the place of a waiter.
var errPlaceLost = fmt.Errorf("zookeeper: the node of this waiter was removed: %w", locker.ErrUnavailable)

// before looks which nodes are before this one in the queue.
func (p *place) before(ctx context.Context) ([]node, error) {
	for sync := false; ; sync = true { // a server that lags behind hides nodes
		q, err := p.s.queueOf(ctx, p.dir, p.id, sync)
		switch {
		case err != nil:
			return nil, err
		case q.found:
			p.raised = p.raised || q.raised
			again, err := p.adopt(ctx, p.dir+"/"+q.self.name)
			if err == nil && !again {
				nodes := q.before()
				return slices.DeleteFunc(nodes, func(n node) bool { return p.passed[n.name] }), nil
			}
			if err != nil {
				return nil, err
			}
		case sync:
			p.become(lost)
			return nil, errPlaceLost
		}
	}
}

// adopt makes the place that of another node with the attempt's ID, if it is
// another: the request was repeated, and has had a place before (R11). One that
// is of another session is not ours to use, whatever its name says.
func (p *place) adopt(ctx context.Context, first string) (again bool, err error) {
	_, path := p.state()
	if first == path {
		return false, nil
	}
	stat, err := ask(ctx, p.s, func(c *zk.Conn) (*zk.Stat, error) { _, stat, err := c.Exists(first); return stat, err })
	if err != nil {
		return false, err
	}
	id, _ := p.s.granted()
	extra := path
	if stat.EphemeralOwner != id {
		extra = first
	}
	if err := p.s.do(ctx, func(c *zk.Conn) error { return c.Delete(extra, -1) }); err != nil && !gone(err) {
		return false, err
	}
	if extra == path {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.path, p.czxid = first, stat.Czxid
	}
	return true, nil
}

// others returns those of the nodes that are of a session. A lasting node, which
// somebody has put there, is nobody's lock.
func (p *place) others(ctx context.Context, nodes []node) ([]node, error) {
	for i, n := range nodes {
		stat, err := ask(ctx, p.s, func(c *zk.Conn) (*zk.Stat, error) { _, stat, err := c.Exists(p.dir + "/" + n.name); return stat, err })
		if err != nil || stat.EphemeralOwner != 0 {
			return nodes[i:], err
		}
	}
	return nil, nil
}

// Without an event, the queue is looked at again very rarely: the service tells
// what happens to a node that is watched, and a connection that breaks is noticed.
const rareLook = 15 * time.Minute

// await returns when it is time to look at the queue again, or when the place is the
// first. It watches the node just before the place. Where that is the only one, its
// end makes the place the first, without another look, if its own node is there: that
// is watched, too, and the service tells what happened in its order.
func (p *place) await(ctx context.Context, before []node) (first bool, err error) {
	ahead := before[len(before)-1]
	p.s.mu.Lock()
	relinked, interval := p.s.relinked, p.s.timeout/10
	p.s.mu.Unlock()
	// What a new connection tells of watches that were set before is in no order.
	inOrder := func() bool { return !isClosed(relinked) }
	var ownTold chan struct{}
	if len(before) == 1 {
		own, err := p.watchOwn(ctx)
		if gone(err) {
			return false, errPlaceLost
		} else if err != nil {
			return false, err
		}
		ownTold = own.told
	}
	w, err := p.s.watch(ctx, p.dir+"/"+ahead.name, nil)
	switch {
	case errors.Is(err, errLasting):
		if p.passed == nil {
			p.passed = make(map[string]bool)
		}
		p.passed[ahead.name] = true
		return false, nil
	case gone(err):
		first = ownTold != nil && inOrder()
		p.raised = p.raised || first // it may have
		return first, nil
	case err != nil:
		return false, err
	}
	// A holder that raises tokens writes to its node in the same step: what it did
	// before it was watched is seen here, and later the watch tells. What was raised
	// before it held was there when the queue was read.
	p.s.mu.Lock()
	p.raised = p.raised || w.written
	p.s.mu.Unlock()
	timer := time.NewTimer(clock.Jitter(rareLook))
	defer timer.Stop()
	for linked := relinked; ; {
		select {
		case <-w.told:
			return w.gone && ownTold != nil && inOrder(), nil
		case <-linked:
			// The driver sets the watches again; whether it could, a look tells.
			linked = nil
			timer.Reset(clock.UpTo(interval))
			continue
		case <-ownTold:
		case <-timer.C:
		case <-p.s.ctx.Done():
			return false, p.s.over()
		case <-ctx.Done():
			return false, ctx.Err()
		}
		return false, nil
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// grant makes a hold of a place that is the first.
func (p *place) grant(ctx context.Context, since time.Time) (locker.Grant, error) {
	v, err := p.s.validity(ctx, since)
	if err == nil && p.raised {
		// Whoever held before cannot raise them any more.
		p.tokens, err = p.s.tokensOf(ctx, p.dir)
	}
	if err == nil {
		err = p.hold()
	}
	if err != nil {
		return locker.Grant{}, err
	}
	return locker.Grant{Hold: p, Validity: v, Token: p.tokens.Of(p.czxid)}, nil
}
