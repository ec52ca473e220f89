package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/golockers/locker"
)

// place is one attempt's place in the queue of a lock: a node of one session.
// It is a [locker.Hold] when it was granted, and beside an error when there
// may be something to take back.
type place struct {
	s    *session
	dir  string // the lock's node
	id   string // marks the attempt and no other
	lost func()

	early *pending[[]string] // the first look at the queue, sent right behind the creation
	own   *waiter            // tells when the node is gone
	again chan struct{}

	mu      sync.Mutex
	path    string            // the node; "" while it is not known
	sent    *pending[created] // the request that creates it, if its caller has left
	czxid   int64
	granted bool
	over    bool          // the node is gone, and not by us
	freed   bool          // it was released
	guard   *time.Timer   // sets the watch on the node of a holder
	guarded bool          // it is set
	cleared chan struct{} // set when it is to be removed in the background; closed when that is done
}

// created is the answer to the creation of a node.
type created struct {
	path  string
	czxid int64 // 0 if it is not known
}

// errPlaceLost says that a place in a queue is gone and nothing is left of
// it: another one can be taken.
var errPlaceLost = errors.New("the place in the queue is lost")

// acquire takes a place and returns when it is the first, or when it is known
// that it will not be. With an error, it is removed, or its removal is under
// way and the Grant has a Hold.
func (p *place) acquire(ctx context.Context, req locker.Request) (locker.Grant, error) {
	since := time.Now()
	if err := p.enter(ctx, req.Label); err != nil {
		return p.leave(err)
	}
	defer p.forgetOwn()
	held := false // the service has said that somebody is before us
	for {
		ahead, err := p.look(ctx)
		switch {
		case err != nil && held && errors.Is(err, locker.ErrUnavailable) && ctx.Err() == nil && !p.s.isDead():
			// An outage while waiting: the place is kept for as long as the
			// session may live, and looked at again after it.
			if !p.sitOut(ctx) {
				return p.leave(err)
			}
			continue
		case err != nil && held && ctx.Err() != nil:
			return p.leave(fmt.Errorf("%w (%w)", locker.ErrHeld, ctx.Err()))
		case err != nil:
			return p.leave(err)
		case ahead == "":
			return p.grant(ctx, since)
		case !req.Wait:
			return p.refuse(ctx)
		}
		held = true
		if err := p.wait(ctx, ahead); err != nil {
			return p.leave(err)
		}
		since = time.Now()
	}
}

// sitOut waits for a connection, and reports whether it makes sense to look
// again: not when the session must have expired.
func (p *place) sitOut(ctx context.Context) bool {
	rest := p.s.backend.opts.SessionTimeout - p.s.offline()
	if rest <= 0 {
		return false
	}
	p.s.pause(firstPause) // what failed may fail at once
	limited, cancel := context.WithTimeout(ctx, rest)
	defer cancel()
	return p.s.reconnected(limited) == nil || p.s.isDead() || ctx.Err() != nil
}

// enter creates the node. When it returns without an error, the path is known.
func (p *place) enter(ctx context.Context, label string) error {
	for {
		if err := p.s.online(ctx); err != nil {
			return err
		}
		// The service answers a session in the order of its requests: a look at
		// the queue that is sent right behind shows the node, and saves a round
		// trip. Should it be sent before, it shows that too, and is repeated.
		early, send := along(p.s, func(c *zk.Conn) ([]string, error) {
			children, _, err := c.Children(p.dir)
			return children, err
		})
		sent, err := start(ctx, p.s, func(c *zk.Conn) (created, error) {
			send()
			path, err := c.Create(p.dir+"/"+p.id+lockMark, []byte(label), zk.FlagEphemeral|zk.FlagSequence, p.s.backend.acl)
			return created{path, p.s.czxid(path)}, err
		})
		if err != nil {
			if early != nil {
				<-p.s.slots
			}
			return err
		}
		made, err, known := sent.wait(ctx)
		switch {
		case !known:
			// The caller leaves; the request goes on (R7, R8).
			p.mu.Lock()
			p.sent = sent
			p.mu.Unlock()
			p.clear()
			return err
		case err == nil:
			p.mu.Lock()
			p.path, p.czxid, p.early = made.path, made.czxid, early
			p.mu.Unlock()
			return nil
		case errors.Is(err, zk.ErrNoNode):
			// Never used, or a container that was empty and has been reaped.
			if err := p.s.makeParents(ctx, p.dir); err != nil {
				return err
			}
		case disconnection(err):
			return p.find(ctx, err)
		default:
			err = p.s.failure(err)
			var r *refusal
			if !errors.As(err, &r) {
				p.clear() // an error of the server's own: who knows
			}
			return err
		}
	}
}

// find looks for a node whose creation was not answered, on the next
// connection. If it is not there, a place is taken anew under another ID, and
// this one is still looked for in the background.
func (p *place) find(ctx context.Context, lost error) error {
	if p.s.isDead() {
		return p.s.over()
	}
	found, err := p.lookUp(ctx)
	if err == nil && found {
		return nil
	}
	p.clear()
	if err == nil {
		return errPlaceLost
	}
	return fmt.Errorf("the connection broke before the answer (%w): %w", lost, err)
}

// lookUp asks for the node by its ID, and notes its path.
func (p *place) lookUp(ctx context.Context) (found bool, err error) {
	children, err := p.s.children(ctx, p.dir, true)
	if err != nil {
		return false, err
	}
	q := readQueue(children, p.id)
	if q.found {
		p.mu.Lock()
		p.path = p.dir + "/" + q.self.name
		p.mu.Unlock()
	}
	return q.found, nil
}

// children returns the children of a lock's node; none if it does not exist.
// A server that this session has just come to may lag behind: with sync, it
// first catches up with all that was done before.
func (s *session) children(ctx context.Context, dir string, sync bool) ([]string, error) {
	children, err := ask(ctx, s, func(c *zk.Conn) ([]string, error) {
		if sync {
			if _, err := c.Sync(dir); err != nil {
				return nil, err
			}
		}
		children, _, err := c.Children(dir)
		return children, err
	})
	if gone(err) {
		return nil, nil
	}
	return children, err
}

// look returns the name of the node just before this one; "" if there is none.
// If the czxid is not known, it reads the node itself at the same time.
func (p *place) look(ctx context.Context) (ahead string, err error) {
	if early := p.early; early != nil {
		p.early = nil
		if children, err, known := early.wait(ctx); known && err == nil {
			if q := readQueue(children, p.id); q.found && p.czxid != 0 && p.dir+"/"+q.self.name == p.path {
				return q.ahead.name, nil
			}
		}
	}
	var stat *zk.Stat
	var statErr error
	var both sync.WaitGroup
	p.mu.Lock()
	path, first := p.path, p.czxid == 0
	p.mu.Unlock()
	if first {
		if p.own == nil {
			p.own = p.s.watches.add(path, p.happened)
		}
		both.Go(func() { stat, statErr = p.s.watches.read(ctx, path) })
	}
	children, err := p.s.children(ctx, p.dir, false)
	both.Wait()
	if err == nil {
		err = statErr
	}
	if gone(err) {
		return "", errPlaceLost
	}
	if err != nil {
		return "", err
	}
	if first {
		if id, _ := p.s.granted(); stat.EphemeralOwner != id {
			// Not of this session: it is not ours to use, whatever its name says.
			return "", errPlaceLost
		}
		p.mu.Lock()
		p.czxid = stat.Czxid
		p.mu.Unlock()
	}
	q := readQueue(children, p.id)
	if !q.found {
		// A server that lags behind hides nodes.
		if children, err = p.s.children(ctx, p.dir, true); err != nil {
			return "", err
		}
		if q = readQueue(children, p.id); !q.found {
			return "", errPlaceLost
		}
	}
	if self := p.dir + "/" + q.self.name; self != path {
		// The request was repeated: the attempt has had a place before (R11).
		return p.adopt(ctx, self)
	}
	return q.ahead.name, nil
}

// adopt makes the place that of another node of the same attempt.
func (p *place) adopt(ctx context.Context, path string) (ahead string, err error) {
	extra := &place{s: p.s, dir: p.dir, id: p.id, path: p.path}
	if p.own != nil {
		p.s.watches.remove(p.path, p.own)
	}
	extra.clear()
	p.mu.Lock()
	p.path, p.czxid, p.own = path, 0, nil
	p.mu.Unlock()
	return p.look(ctx)
}

// wait returns when the node ahead may be gone, or it is time to look all the
// same (R14). An error says that there is nothing to wait for any more.
func (p *place) wait(ctx context.Context, ahead string) error {
	path := p.dir + "/" + ahead
	fired := make(chan struct{}, 1)
	w := p.s.watches.add(path, func(zk.EventType) { fired <- struct{}{} })
	defer p.s.watches.remove(path, w)
	poll := min(p.s.backend.opts.SessionTimeout/2, longestPoll)
	timer := time.NewTimer(poll/2 + rand.N(poll))
	defer timer.Stop()
	if err := p.s.watches.arm(ctx, path); err != nil && ctx.Err() == nil {
		if !gone(err) && !p.s.isDead() {
			p.s.pause(firstPause) // an outage; look tells
		}
		return p.s.over()
	}
	select {
	case <-fired:
	case <-p.again:
	case <-timer.C:
	case <-p.s.dead:
		return p.s.over()
	case <-ctx.Done():
		return fmt.Errorf("%w (%w)", locker.ErrHeld, ctx.Err())
	}
	return nil
}

const longestPoll = 5 * time.Second

// grant makes a hold of a place that is the first.
func (p *place) grant(ctx context.Context, since time.Time) (locker.Grant, error) {
	v, err := p.s.validity(ctx, since)
	if err != nil {
		return p.leave(err)
	}
	if !p.s.tell(p) {
		return p.leave(errPlaceLost)
	}
	p.mu.Lock()
	p.granted = true
	over := p.over
	// A lock that is held for a moment only is not worth the watch.
	p.guard = time.AfterFunc(guardAfter, func() { p.s.spawn(p.watchAgain) })
	p.mu.Unlock()
	if over {
		p.s.forget(p)
		return p.leave(errPlaceLost)
	}
	return locker.Grant{Hold: p, Validity: v, Token: uint64(p.czxid)}, nil
}

// guardAfter is how long a lock is held before its node is watched.
const guardAfter = 10 * time.Millisecond

// refuse removes the place of a caller who does not wait.
func (p *place) refuse(ctx context.Context) (locker.Grant, error) {
	if err := p.remove(ctx); err != nil && !gone(err) {
		p.clear()
	}
	return locker.Grant{}, &locker.HeldError{}
}

// leave gives the place up because of err. What may be left of it is removed
// in the background: the Grant has the hold through which the engine follows it.
func (p *place) leave(err error) (locker.Grant, error) {
	p.mu.Lock()
	there := p.path != "" || p.sent != nil || p.cleared != nil
	p.mu.Unlock()
	if !there {
		return locker.Grant{}, err
	}
	p.clear()
	return locker.Grant{Hold: p}, err
}

// happened is called by the driver when something happened to the node.
func (p *place) happened(event zk.EventType) {
	if event != zk.EventNodeDeleted {
		// Somebody wrote to it: that used the watch up.
		p.s.spawn(p.watchAgain)
		return
	}
	p.gone()
}

// watchAgain sets the watch on a holder's node, in the background.
func (p *place) watchAgain() {
	for {
		p.mu.Lock()
		over := p.freed || p.cleared != nil || p.over
		p.mu.Unlock()
		if over || p.s.isDead() || p.watchOwn(p.s.ctx) == nil {
			return
		}
		p.s.pause(p.s.interval())
	}
}

// watchOwn sets the watch on a holder's node; if the node is gone, it tells.
func (p *place) watchOwn(ctx context.Context) error {
	p.mu.Lock()
	path := p.path
	p.mu.Unlock()
	w := p.s.watches.add(path, p.happened)
	_, err := p.s.watches.read(ctx, path)
	if err != nil {
		p.s.watches.remove(path, w)
	}
	if gone(err) {
		p.gone()
		return nil
	}
	if err == nil {
		p.mu.Lock()
		p.guarded = true
		p.mu.Unlock()
	}
	return err
}

// gone notes that the node is not there any more, and tells the holder, unless
// it was removed on purpose. It does not block.
func (p *place) gone() {
	p.mu.Lock()
	if p.freed || p.cleared != nil || p.over {
		p.mu.Unlock()
		return
	}
	p.over = true
	granted := p.granted
	p.mu.Unlock()
	select {
	case p.again <- struct{}{}:
	default:
	}
	if granted && p.lost != nil {
		p.lost()
	}
}

// forgetOwn ends the interest of a wait in its own node; a holder's begins anew.
func (p *place) forgetOwn() {
	p.mu.Lock()
	path := p.path
	p.mu.Unlock()
	if p.own != nil {
		p.s.watches.remove(path, p.own)
	}
}
