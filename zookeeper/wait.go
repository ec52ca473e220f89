package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/clock"
	"github.com/golockers/locker/internal/queue"
)

// children are the names of a node's children.
type children struct {
	names []string
	last  int64 // the transaction in which a child was last created or deleted
}

// children reads the children of a node. A server that this session has just connected to may lag behind: with sync,
// it first catches up with everything that was done before.
func (s *session) children(ctx context.Context, path string, sync bool) (children, error) {
	return ask(ctx, s, func(c *zk.Conn) (of children, err error) {
		if sync {
			if _, err := c.Sync(path); err != nil {
				return of, err
			}
		}
		names, stat, err := c.Children(path)
		if err == nil {
			of = children{names, stat.Pzxid}
		}
		return of, err
	})
}

// queueOf returns the queue of a lock; it is empty if the lock's node does not exist.
func (s *session) queueOf(ctx context.Context, dir, id string, sync bool) (nodes, error) {
	of, err := s.children(ctx, dir, sync)
	if err != nil && !gone(err) {
		return nodes{}, err
	}
	q := readQueue(of.names, id)
	q.last = of.last
	return q, nil
}

// isFirst is for a caller that does not wait: if somebody is in the way of the entry, it removes the entry and returns
// driver.ErrHeld.
func (e *entry) isFirst(ctx context.Context) error {
	ahead, err := e.ahead(ctx)
	if err == nil && len(ahead) > 0 {
		_ = e.remove(ctx, false) // if this fails, the engine undoes the attempt
		err = driver.ErrHeld
	}
	return err
}

// wait returns nil when nobody is in the way of the entry any more.
func (e *entry) wait(ctx context.Context, queued func()) error {
	err := queue.Wait(ctx, e.s.Session, e, nil, queued)
	if err != nil && e.s.isOver() && (ctx.Err() == nil || !errors.Is(err, ctx.Err())) {
		return e.s.over()
	}
	return err
}

var _ queue.Place[node] = (*entry)(nil)

// Ahead implements [queue.Place]: it returns the nearest of the nodes that keep this one out. It waits for the end of
// an outage.
func (e *entry) Ahead(ctx context.Context) (*node, error) {
	if err := e.s.reconnected(ctx); err != nil {
		return nil, err
	}
	ahead, err := e.ahead(ctx)
	if err != nil || len(ahead) == 0 {
		return nil, err
	}
	return &ahead[len(ahead)-1], nil
}

// Lost implements [queue.Place].
func (e *entry) Lost(err error) bool {
	return e.current() == none || !errors.Is(err, driver.ErrUnavailable)
}

// ahead reads which nodes before this one in the queue keep it out. A run of sharers gets
// in together, when the last writer before them is gone, and a waiting writer keeps out
// the sharers that come later.
func (e *entry) ahead(ctx context.Context) ([]node, error) {
	e.asked = time.Now()
	for sync := false; ; sync = true { // a server that lags behind hides nodes
		q, err := e.s.queueOf(ctx, e.dir, e.id, sync)
		if first := e.dir + "/" + q.self.name; err == nil && q.found && first != e.node() {
			if err = e.adopt(ctx, first); err == nil {
				continue
			}
		}
		switch {
		case err != nil:
			return nil, err
		case q.found:
			e.raised = q.raised
			ahead := inTheWay(q.before(), e.shared)
			if e.shared && len(q.before())-len(ahead) >= driver.MaxSharers {
				return nil, fmt.Errorf("zookeeper: %w: %d share %s, or wait to, and no more can", driver.ErrRefused,
					driver.MaxSharers, e.dir)
			}
			return ahead, nil
		case sync:
			return nil, e.removed()
		}
	}
}

// removed is the error of a waiter whose node somebody has removed.
func (e *entry) removed() error {
	e.become(none)
	return fmt.Errorf("zookeeper: the node of this waiter was removed: %w", driver.ErrUnavailable)
}

// adopt deals with an earlier node that has the attempt's owner. If it belongs to this
// session, the request was repeated (R11): the entry takes that node, and deletes its
// own. A node of another session is deleted and not used, whatever its name says.
func (e *entry) adopt(ctx context.Context, first string) error {
	found, err := e.s.get(ctx, first)
	if gone(err) {
		return nil
	}
	if err != nil {
		return err
	}
	id, _ := e.s.granted()
	ours, extra := found.stat.EphemeralOwner == id, first
	if ours {
		extra = e.node()
	}
	if err := e.s.do(ctx, func(c *zk.Conn) error { return c.Delete(extra, -1) }); err != nil && !gone(err) {
		return err
	}
	if ours {
		e.found(first, found.stat.Czxid)
	}
	return nil
}

// rareLook is how often the queue is read again without an event. It is rare because the
// service reports what happens to a watched node, and a broken connection is noticed.
const rareLook = 15 * time.Minute

// Await implements [queue.Place]: it watches the nearest node ahead.
func (e *entry) Await(ctx context.Context, nearest *node) error {
	e.s.mu.Lock()
	relinked, interval := e.s.relinked, e.s.timeout/10
	e.s.mu.Unlock()
	timer := time.NewTimer(clock.Jitter(rareLook))
	defer timer.Stop()
	for {
		w, err := e.s.watch(ctx, e.dir+"/"+nearest.name, nil)
		if gone(err) {
			return nil
		} else if err != nil {
			return err
		}
		select {
		case <-relinked:
			// The driver sets the watches again. A look at the queue covers the case that it could not.
			relinked = nil
			timer.Reset(clock.UpTo(interval))
		case <-w.told:
			return nil
		case <-timer.C:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
