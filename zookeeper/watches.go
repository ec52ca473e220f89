package zookeeper

import (
	"context"
	"errors"
	"sync"

	"github.com/go-zookeeper/zk"
)

// watches are the nodes that a session watches, for places that wait for a
// node to go, or hold by one. There is at most one watch per node in the
// driver and in the service, however many want it and however often they come
// and go; it is set by reading the node's data, so that there is none on a
// node that does not exist, and it ends when the node does. So what a wait
// that was given up leaves is at most a watch on a node that is there, which
// the next wait for it uses again.
type watches struct {
	session *session

	mu     sync.Mutex
	byPath map[string]*watch
}

// watch is what a session has on one node. Its fields are guarded by watches.mu.
type watch struct {
	armed   bool // the service will tell
	reads   int  // requests under way that set it
	fired   int  // how often it has told
	waiters map[*waiter]struct{}
}

// waiter is told once, when something happened to the node.
type waiter struct {
	fn func(zk.EventType)
}

// add arranges for fn to be called when something happens to the node. It is
// called by the driver's goroutine and must not block. The caller sets the
// watch afterwards, by read.
func (ws *watches) add(path string, fn func(zk.EventType)) *waiter {
	w := &waiter{fn: fn}
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.at(path).waiters[w] = struct{}{}
	return w
}

// at returns the watch on path, making one. ws.mu is held.
func (ws *watches) at(path string) *watch {
	x := ws.byPath[path]
	if x == nil {
		x = &watch{waiters: make(map[*waiter]struct{})}
		if ws.byPath == nil {
			ws.byPath = make(map[string]*watch)
		}
		ws.byPath[path] = x
	}
	return x
}

// remove undoes add. A watch that is set stays with its node.
func (ws *watches) remove(path string, w *waiter) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if x := ws.byPath[path]; x != nil {
		delete(x.waiters, w)
		ws.tidy(path, x)
	}
}

// tidy forgets a watch that nobody wants and that is not set. ws.mu is held.
func (ws *watches) tidy(path string, x *watch) {
	if len(x.waiters) == 0 && !x.armed && x.reads == 0 && ws.byPath[path] == x {
		delete(ws.byPath, path)
	}
}

// arm returns when the node is watched: at once if it is already. The error is
// zk.ErrNoNode if there is no such node.
func (ws *watches) arm(ctx context.Context, path string) error {
	ws.mu.Lock()
	x := ws.byPath[path]
	armed := x != nil && x.armed
	ws.mu.Unlock()
	if armed {
		return nil
	}
	_, err := ws.read(ctx, path)
	return err
}

// read returns the node's state and sets the watch with the same request.
func (ws *watches) read(ctx context.Context, path string) (*zk.Stat, error) {
	if err := ws.session.online(ctx); err != nil {
		return nil, err
	}
	ws.mu.Lock()
	x := ws.at(path)
	x.reads++
	fired := x.fired
	ws.mu.Unlock()
	answered := func(set bool) {
		ws.mu.Lock()
		defer ws.mu.Unlock()
		x.reads--
		// An event that came meanwhile may have used this watch up.
		if set && x.fired == fired {
			x.armed = true
		}
		ws.tidy(path, x)
	}
	p, err := start(ctx, ws.session, func(c *zk.Conn) (*zk.Stat, error) {
		_, stat, _, err := c.GetW(path)
		answered(err == nil)
		return stat, err
	})
	if err != nil {
		answered(false)
		return nil, err
	}
	stat, err, known := p.wait(ctx)
	if known {
		err = ws.session.failure(err)
	}
	return stat, err
}

// fire is called by the driver when something happened to a node.
func (ws *watches) fire(path string, event zk.EventType) {
	ws.mu.Lock()
	x := ws.byPath[path]
	if x == nil {
		ws.mu.Unlock()
		return
	}
	x.armed = false
	x.fired++
	waiters := x.waiters
	x.waiters = make(map[*waiter]struct{})
	ws.tidy(path, x)
	ws.mu.Unlock()
	for w := range waiters {
		w.fn(event)
	}
}

// any reports whether the driver may have a watch to set again on a new connection.
func (ws *watches) any() bool {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for _, x := range ws.byPath {
		if x.armed || x.reads > 0 {
			return true
		}
	}
	return false
}

// gone reports whether an error says that a node does not exist.
func gone(err error) bool { return errors.Is(err, zk.ErrNoNode) }
