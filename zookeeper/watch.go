package zookeeper

import (
	"context"

	"github.com/go-zookeeper/zk"
)

// watch is a session's watch on one node, which fires when the node is deleted. It
// watches the node's children, although there are none: a watch on its data would wake
// thousands of readers that wait for one writer when that writer is marked. There is at
// most one per node, in the driver and in the service, however many callers want it and
// however often they come and go. It is set by reading the node, so there is none on a
// node that does not exist, and it ends when the node does: a wait that was given up
// leaves at most a watch on an existing node, which the next wait uses again.
type watch struct {
	told chan struct{} // closed when it has fired

	// Guarded by session.mu.
	armed bool   // the service has it
	reads int    // requests in flight that arm it
	own   *entry // the holder, which is notified of the deletion; nil: none of this session's
}

// watch returns the watch on a node once it is set. The holder, if it is not nil, is
// notified when the node is deleted.
func (s *session) watch(ctx context.Context, path string, holder *entry) (*watch, error) {
	s.mu.Lock()
	w := s.watched[path]
	if w == nil {
		w = &watch{told: make(chan struct{})}
		s.watched[path] = w
	}
	if holder != nil {
		w.own = holder
	}
	armed := w.armed
	w.reads++
	s.mu.Unlock()
	var err error
	if !armed {
		err = s.do(ctx, func(c *zk.Conn) error { _, _, _, err := c.ChildrenW(path); return err })
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	w.reads--
	w.armed = w.armed || err == nil
	if !w.armed && w.reads == 0 && s.watched[path] == w {
		delete(s.watched, path)
	}
	return w, err
}

// fire is called by the driver when something happened to a node.
func (s *session) fire(path string, event zk.EventType) {
	s.mu.Lock()
	w := s.watched[path]
	if w == nil {
		s.mu.Unlock()
		return
	}
	delete(s.watched, path)
	own := w.own
	s.mu.Unlock()
	if own != nil && event == zk.EventNodeDeleted { // after any other event, Renew sets the watch again
		own.gone()
	}
	close(w.told)
}
