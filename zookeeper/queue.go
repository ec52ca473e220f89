package zookeeper

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/golockers/locker"
)

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
		return lookAt(c, dir)
	})
	if gone(err) {
		return nil, nil
	}
	return children, err
}

func lookAt(c *zk.Conn, dir string) ([]string, error) {
	children, _, err := c.Children(dir)
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
	fired := make(chan *pending[[]string], 1)
	w := p.s.watches.add(path, func(zk.EventType) {
		// What comes next is a look at the queue: it is on its way before the caller is awake.
		look, send := along(p.s, func(c *zk.Conn) ([]string, error) { return lookAt(c, p.dir) })
		send()
		fired <- look
	})
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
	case p.early = <-fired:
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
