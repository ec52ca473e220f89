package zookeeper

import (
	"context"

	"github.com/go-zookeeper/zk"
)

// watch is what a session has asked the service to tell about one node: when it
// goes. It is a watch of its children, of which it has none, since one of its data would tell thousands of readers,
// who wait for one writer, when that is marked. There is at most one per node in the driver and in the
// service, however many want it and however often they come and go. It is set by
// reading the node, so there is none on a node that does not exist, and it ends
// when the node does: a wait that was given up leaves at most a watch on a node
// that is there, which the next wait for it uses again.
type watch struct {
	told chan struct{} // closed when something happened

	// Guarded by session.mu.
	armed bool // the service will tell
	reads int  // requests under way that arm it
	own   *entry
}

// watch returns the watch on a node once it is set. Its holder, if there is one,
// is told what happens to the node.
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
	if own != nil && event == zk.EventNodeDeleted { // if not, Renew sets the next watch
		own.gone()
	}
	close(w.told)
}
