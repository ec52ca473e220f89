package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/clock"
)

// children returns the names of the nodes below one. A server that this session has
// just come to may lag behind: with sync, it first catches up with all that was done before.
func (s *session) children(ctx context.Context, path string, sync bool) ([]string, error) {
	return ask(ctx, s, func(c *zk.Conn) ([]string, error) {
		if sync {
			if _, err := c.Sync(path); err != nil {
				return nil, err
			}
		}
		children, _, err := c.Children(path)
		return children, err
	})
}

// queueOf returns the queue of a lock; it is empty if the lock's node does not exist.
func (s *session) queueOf(ctx context.Context, dir, id string, sync bool) (queue, error) {
	children, err := s.children(ctx, dir, sync)
	if err != nil && !gone(err) {
		return queue{}, err
	}
	return readQueue(children, id), nil
}

// wait waits until nobody is in the way of the entry: it reads the queue until nobody
// who keeps it out is ahead, and awaits a reason before it reads again. It returns a time from
// before that was known, for MaxHold.
func (e *entry) wait(ctx context.Context, req driver.Request) (time.Time, error) {
	for queued := false; ; {
		since := time.Now()
		ahead, err := e.ahead(ctx)
		switch {
		case err == nil && len(ahead) == 0:
			return since, nil
		case err == nil && !req.Wait:
			_ = e.remove(ctx, false) // if it is not known to be gone then, it is taken back
			return since, driver.ErrHeld
		case err == nil:
			queued = true
			req.Queued()
			err = e.await(ctx, ahead[len(ahead)-1])
		}
		switch {
		case err == nil:
		case ctx.Err() != nil && queued:
			return since, fmt.Errorf("%w (%w)", driver.ErrHeld, ctx.Err())
		case ctx.Err() != nil, !queued, e.s.isOver(), e.current() == lost, !errors.Is(err, driver.ErrUnavailable):
			return since, err
		default:
			// An outage while waiting: the entry is kept for as long as the session
			// may live, and looked at again after it.
			if e.s.sitOut(ctx) != nil && ctx.Err() == nil {
				return since, err
			}
		}
	}
}

// ahead reads which nodes before this one in the queue keep it out. So a run of sharers
// gets in together, when the last one before them that wants the lock alone is gone;
// and whoever waits to have it alone keeps those out who come later.
func (e *entry) ahead(ctx context.Context) ([]node, error) {
	for sync := false; ; sync = true { // a server that lags behind hides nodes
		q, err := e.s.queueOf(ctx, e.dir, e.id(), sync)
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
			ahead := inTheWay(q.before(), e.shared())
			if e.shared() && len(q.before())-len(ahead) >= driver.MaxSharers {
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
	e.become(lost)
	return fmt.Errorf("zookeeper: the node of this waiter was removed: %w", driver.ErrUnavailable)
}

// adopt makes the entry that of an earlier node with the attempt's owner: the
// request was repeated (R11). One that is of another session is deleted and not
// used, whatever its name says.
func (e *entry) adopt(ctx context.Context, first string) error {
	_, stat, err := e.s.get(ctx, first)
	if gone(err) {
		return nil
	}
	if err != nil {
		return err
	}
	id, _ := e.s.granted()
	ours, extra := stat.EphemeralOwner == id, first
	if ours {
		extra = e.node()
	}
	if err := e.s.do(ctx, func(c *zk.Conn) error { return c.Delete(extra, -1) }); err != nil && !gone(err) {
		return err
	}
	if ours {
		e.found(first, stat.Czxid)
	}
	return nil
}

// Without an event, the queue is looked at again very rarely: the service tells
// what happens to a node that is watched, and a connection that breaks is noticed.
const rareLook = 15 * time.Minute

// await returns when it is time to read the queue again. It watches the nearest node ahead.
func (e *entry) await(ctx context.Context, nearest node) error {
	e.s.mu.Lock()
	relinked, interval := e.s.relinked, e.s.timeout/10
	e.s.mu.Unlock()
	w, err := e.s.watch(ctx, e.dir+"/"+nearest.name, nil)
	if gone(err) {
		return nil
	}
	if err != nil {
		return err
	}
	timer := time.NewTimer(clock.Jitter(rareLook))
	defer timer.Stop()
	for {
		select {
		case <-relinked:
			// The driver sets the watches again; whether it could, a look tells.
			relinked = nil
			timer.Reset(clock.UpTo(interval))
			continue
		case <-w.told:
		case <-timer.C:
		case <-e.s.ctx.Done():
			return e.s.over()
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
