package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

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

	early *pending[[]string] // a look at the queue that is under way, sent right behind what made it due
	own   *waiter            // tells when the node is gone
	again chan struct{}

	mu      sync.Mutex
	path    string            // the node; "" while it is not known
	sent    *pending[created] // the request that creates it, if its caller has left
	made    bool              // the lock's node was made for this one
	unsure  bool              // its creation was not answered
	czxid   int64
	granted bool
	over    bool      // the node is gone, and not by us
	freed   bool      // it was released
	guarded bool      // the watch on the node of a holder is set
	cleared *clearing // set when it is to be removed in the background
}

// created is the answer to the creation of a node.
type created struct {
	path  string
	czxid int64 // 0 if it is not known
	queue []string
	err   error // of the look at the queue
}

// errPlaceLost says that a place in a queue is gone and nothing is left of
// it: another one can be taken.
var errPlaceLost = errors.New("the place in the queue is lost")

// acquire takes a place and returns when it is the first, or when it is known
// that it will not be. With an error, it is removed, or its removal is under
// way and the Grant has a Hold.
func (p *place) acquire(ctx context.Context, req locker.Request) (locker.Grant, error) {
	if !req.Wait {
		if err := p.peek(ctx); err != nil {
			return locker.Grant{}, err
		}
	}
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
		if req.Queued != nil {
			req.Queued()
		}
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
	p.mu.Unlock()
	p.s.guard(p)
	if over {
		p.s.forget(p)
		return p.leave(errPlaceLost)
	}
	return locker.Grant{Hold: p, Validity: v, Token: uint64(p.czxid)}, nil
}

// leave gives the place up because of err. What may be left of it is removed
// in the background: the Grant has the hold through which the engine follows it.
func (p *place) leave(err error) (locker.Grant, error) {
	p.mu.Lock()
	there := p.path != "" || p.sent != nil || p.cleared != nil || p.made
	p.mu.Unlock()
	if !there {
		return locker.Grant{}, err
	}
	p.clear()
	return locker.Grant{Hold: p}, err
}
