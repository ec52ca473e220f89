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
	// raised: somebody before has raised the tokens, or may have.
	raised bool
	tokens tokens      // as they were when the lock was granted
	guard  *time.Timer // sets the watch on a holder's node

	mu      sync.Mutex
	life    life
	room    int    // bytes taken of the session's room for paths
	path    string // the node, once it is known
	czxid   int64
	sending chan struct{} // closed when the driver is through with the creation
	void    bool          // no creation may be sent any more
	guarded bool          // the watch on the node is set
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
	if err := ctx.Err(); err != nil {
		return locker.Grant{}, err
	}
	dir := b.dir(req.Name)
	if !req.Wait { // without room: many may look at once
		s, err := b.session(ctx)
		if err == nil {
			err = (&place{s: s, dir: dir, id: req.Owner}).peek(ctx)
		}
		if err != nil {
			return locker.Grant{}, err
		}
	}
	room := pathBytes(dir + "/" + req.Owner + lockMark + sequenceDigits)
	s, err := b.join(ctx, room)
	if err != nil {
		return locker.Grant{}, err
	}
	p := &place{s: s, dir: dir, id: req.Owner, label: req.Label, lost: req.Lost, tokens: tokens{version: -1}, room: room}
	if _, timeout := s.granted(); req.TTL > timeout {
		p.become(absent)
		return locker.Grant{}, fmt.Errorf("zookeeper %s: a TTL of %v is asked for, and the servers grant sessions of %v: ask for less, or raise their maxSessionTimeout: %w",
			b, req.TTL, timeout, errors.ErrUnsupported)
	}
	since := time.Now()
	err = p.enter(ctx)
	if errors.Is(err, errQueue) {
		since, err = p.queue(ctx, req)
	}
	if err == nil {
		return p.grant(ctx, since)
	}
	p.mu.Lock()
	left := p.life == unknown || p.life == queued
	p.mu.Unlock()
	if !left || s.isOver() {
		return locker.Grant{}, err
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

// errQueue says that others may be in the queue.
var errQueue = errors.New("there are others in the queue")

// enter creates the node. With it, in one transaction, it writes to the lock's
// node: the answer tells how many nodes there are in the queue, and the number
// of the transaction, which is the czxid of the new one. So a lock that nobody
// else wants costs this one request. (With a look at the queue as a request of
// its own, and one at the node for the czxid, pairs per second of 256 callers
// fell to 0.55 of those of a bare creation and deletion, from 0.95.)
func (p *place) enter(ctx context.Context) error {
	if err := p.s.online(ctx); err != nil {
		p.become(absent)
		return err
	}
	p.become(unknown)
	answer, err := ask(ctx, p.s, func(c *zk.Conn) ([]zk.MultiResponse, error) {
		sent, err := p.send()
		if err != nil {
			return nil, err
		}
		defer close(sent)
		acl := p.s.backend.acl
		for {
			answer, err := c.Multi(
				&zk.CreateRequest{Path: p.dir + "/" + p.id + lockMark, Data: []byte(p.label), Acl: acl, Flags: zk.FlagEphemeral | zk.FlagSequence},
				&zk.SetDataRequest{Path: p.dir, Version: -1})
			if !gone(err) {
				return answer, err
			}
			// Never used, or a container that was empty and has been reaped. A caller
			// may leave, and there will be a node in it all the same: the service
			// removes only containers that have had one.
			if err := makeParents(c, p.dir, acl); err != nil {
				return nil, err
			}
		}
	})
	switch {
	case err == nil && len(answer) == 2 && answer[1].Stat != nil:
	case err == nil:
		return fmt.Errorf("zookeeper: the answer to a creation is not one: %w", locker.ErrUnavailable)
	case isRefusal(err):
		p.become(absent)
		return err
	default:
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.life, p.path, p.czxid = queued, answer[0].String, answer[1].Stat.Mzxid
	if n, _ := parseNode(path.Base(p.path)); n.spent() {
		return fmt.Errorf("zookeeper: %s has had two thousand million nodes, and the servers count no further: remove it at a time when nobody locks the name (and raise its tokens again if they were raised): %w", p.dir, locker.ErrRefused)
	}
	if answer[1].Stat.NumChildren > 1 {
		return errQueue
	}
	return nil
}

// send begins a creation, which the caller may leave behind, unless it was taken
// back before it began. It returns what is to be closed when it ends.
func (p *place) send() (chan struct{}, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.void {
		return nil, zk.ErrConnectionClosed // nobody waits for it
	}
	p.sending = make(chan struct{})
	return p.sending, nil
}

// become moves the place on, unless its node is gone.
func (p *place) become(to life) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.life < lost {
		p.life = to
	}
	p.settle()
}

// settle gives the session's room back if the node is gone for good. p.mu is held.
func (p *place) settle() {
	if p.life == absent || p.life >= lost {
		p.s.leave(p.room)
		p.room = 0
	}
}

// state returns the place's life, and its node.
func (p *place) state() (life, string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.life, p.path
}

// queueOf returns the queue of a lock; it is empty if the lock's node does not
// exist. A server that this session has just come to may lag behind: with sync,
// it first catches up with all that was done before.
func (s *session) queueOf(ctx context.Context, dir, id string, sync bool) (queue, error) {
	children, err := ask(ctx, s, func(c *zk.Conn) ([]string, error) {
		if sync {
			if _, err := c.Sync(dir); err != nil {
				return nil, err
			}
		}
		children, _, err := c.Children(dir)
		return children, err
	})
	if err != nil && !gone(err) {
		return queue{}, err
	}
	return readQueue(children, id), nil
}

// queue waits until the place is the first. It returns when that was known.
func (p *place) queue(ctx context.Context, req locker.Request) (time.Time, error) {
	for held := false; ; {
		since := time.Now()
		before, err := p.before(ctx)
		switch {
		case err == nil && len(before) == 0:
			return since, nil
		case err == nil && !req.Wait:
			if before, err = p.others(ctx, before); err == nil && len(before) == 0 {
				return since, nil
			} else if err == nil {
				_ = p.remove(ctx, false) // what is not known to be gone then is taken back
				return since, &locker.HeldError{}
			}
		case err == nil:
			held = true
			if req.Queued != nil {
				req.Queued()
			}
			if err = p.await(ctx, before); errors.Is(err, errFirst) {
				return time.Now(), nil
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
var errPlaceLost = errors.New("the node of this waiter was removed")

func (p *place) removed() error {
	p.become(lost)
	return fmt.Errorf("zookeeper: %w: %w", errPlaceLost, locker.ErrUnavailable)
}

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
			return nil, p.removed()
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

// errFirst says that there is nobody before the place any more.
var errFirst = errors.New("it is the first")

// Without an event, the queue is looked at again very rarely: the service tells
// what happens to a node that is watched, and a connection that breaks is noticed.
const rareLook = 15 * time.Minute

// await returns when it is time to look at the queue again, or with errFirst. It
// watches the node just before the place. Where that is the only one, its end
// makes the place the first, without another look, if its own node is there:
// that is watched, too, and the service tells what happened in its order.
func (p *place) await(ctx context.Context, before []node) error {
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
			return p.removed()
		} else if err != nil {
			return err
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
		return nil
	case gone(err) && ownTold != nil && inOrder():
		p.raised = true // it may have
		return p.first()
	case gone(err):
		return nil
	case err != nil:
		return err
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
			if w.gone && ownTold != nil && inOrder() {
				return p.first()
			}
			return nil
		case <-linked:
			// The driver sets the watches again; whether it could, a look tells.
			linked = nil
			timer.Reset(clock.UpTo(interval))
			continue
		case <-ownTold:
		case <-timer.C:
		case <-p.s.ctx.Done():
			return p.s.over()
		case <-ctx.Done():
			return ctx.Err()
		}
		return nil
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

// first returns errFirst if the place is still there.
func (p *place) first() error {
	if life, _ := p.state(); life != queued {
		return p.removed()
	}
	return errFirst
}

// grant makes a hold of a place that is the first.
func (p *place) grant(ctx context.Context, since time.Time) (locker.Grant, error) {
	v, err := p.s.validity(ctx, since)
	if err == nil && p.raised {
		// Whoever held before cannot raise them any more.
		p.tokens, err = p.s.tokensOf(ctx, p.dir)
	}
	if err == nil {
		err = p.s.hold(p)
	}
	if err != nil {
		return locker.Grant{Hold: p}, err
	}
	return locker.Grant{Hold: p, Validity: v, Token: p.tokens.Of(p.czxid)}, nil
}
