package zookeeper

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/raised"
)

// Node describes the node that holds a lock, for locker.Lease.As:
//
//	var node zookeeper.Node
//	if lease.As(&node) { … }
type Node struct {
	Path    string // of the node
	Czxid   int64  // of the transaction that created it: the fencing token, unless tokens were raised
	Session int64  // the session that the node belongs to
}

// As implements [driver.Aser], for a *[Node].
func (e *entry) As(target any) bool {
	n, ok := target.(*Node)
	if ok {
		e.mu.Lock()
		defer e.mu.Unlock()
		n.Path, n.Czxid = e.path, e.czxid
		n.Session, _ = e.s.granted()
	}
	return ok
}

const (
	// guardAfter is when the node of a holder is watched. A lock that is held only
	// for a moment is not worth the request.
	guardAfter = 10 * time.Millisecond
	// markAfter is when the node of a holder is marked, by one write: it has been held since markAfter before that
	// write. The time of its creation does not say so, since it may have waited.
	markAfter = time.Second
)

// hold makes the entry a holder's.
func (e *entry) hold() error {
	if e.become(held) != queued {
		return e.removed()
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	// The engine knows the end of a session by its own deadline (R5). This is for sessions that end earlier.
	forget, err := e.s.Grant(func() {
		if e.current() == held {
			e.lost()
		}
	})
	e.forget = forget
	if err != nil {
		return e.s.over()
	}
	e.later(guardAfter, func() {
		e.mu.Lock()
		if e.state == held {
			e.later(markAfter-guardAfter, e.markHeld)
		}
		e.mu.Unlock()
		_ = e.watchOwn(e.s.Context()) // if it fails, Renew sets the watch
	})
	return nil
}

// later calls f after d if the lock is still held then. e.mu is held.
func (e *entry) later(d time.Duration, f func()) {
	e.guard = time.AfterFunc(d, func() {
		if e.current() == held {
			e.s.spawn(f)
		}
	})
}

// markHeld marks the node of a holder. If that fails, Inspect cannot say since when the lock has been held.
func (e *entry) markHeld() {
	_ = e.s.do(e.s.Context(), func(c *zk.Conn) error { _, err := c.Set(e.node(), []byte(e.label), 0); return err })
}

// watchOwn sets the watch on the entry's own node, unless it is set.
func (e *entry) watchOwn(ctx context.Context) error {
	_, err := e.s.watch(ctx, e.node(), e)
	if gone(err) {
		e.gone()
		return errGone
	}
	return err
}

// Renew implements [driver.Hold]: it costs no request once the node is watched,
// since the session's heartbeat renews all its holds.
func (e *entry) Renew(ctx context.Context) (v driver.Validity, err error) {
	if _, err = e.heldNode(ctx); err == nil {
		err = e.watchOwn(ctx)
	}
	if err == nil {
		v, err = e.s.validity(ctx, time.Now())
	}
	if err != nil && e.s.isOver() {
		err = e.ended()
	}
	return v, err
}

// heldNode returns the path of the node of an entry that is held. If the node is being removed, it waits for the result.
func (e *entry) heldNode(ctx context.Context) (string, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.state == leaving {
		removal := e.removal
		e.mu.Unlock()
		select {
		case <-removal:
		case <-e.s.Context().Done():
		case <-ctx.Done():
			e.mu.Lock()
			return "", unanswered(ctx)
		}
		e.mu.Lock()
	}
	switch {
	case e.s.isOver():
		return "", e.ended()
	case e.state == held:
		return e.path, nil
	case e.state == leaving:
		return "", fmt.Errorf("zookeeper: its removal was begun, and not confirmed: %w", driver.ErrUnavailable)
	}
	return "", errGone
}

var errGone = fmt.Errorf("zookeeper: its node is gone: %w", driver.ErrLost)

// ended is the error of a hold whose session is over.
func (e *entry) ended() error {
	return fmt.Errorf("zookeeper: %s: %w", e.s.Err().Error(), driver.ErrLost)
}

// RaiseToken implements [driver.TokenRaiser]. What is added to czxids is kept in a lasting node alongside the queue, so
// the service does not remove the lock's container any more. The same transaction checks that the holder's node is
// there. The next holder reads the queue once that node is gone, and finds the lasting one.
func (e *entry) RaiseToken(ctx context.Context, token uint64) error {
	node := e.dir + "/" + tokensNode
	for now := e.tokens; ; {
		path, err := e.heldNode(ctx)
		if err != nil {
			return err
		}
		then, err := now.Raise(e.czxid, token)
		if err != nil {
			return err
		}
		answer, err := ask(ctx, e.s, func(c *zk.Conn) ([]zk.MultiResponse, error) {
			if then == now.Tokens { // nothing to write, but the lock must be held
				_, _, err := c.Get(path)
				return []zk.MultiResponse{{Error: err}}, err
			}
			var put any = &zk.SetDataRequest{Path: node, Data: []byte(then.String()), Version: now.version}
			if now.version < 0 {
				put = &zk.CreateRequest{Path: node, Data: []byte(then.String()), Acl: e.s.backend.acl}
			}
			return c.Multi(&zk.CheckVersionRequest{Path: path, Version: -1}, put)
		})
		switch {
		case err == nil:
			return nil
		case len(answer) > 0 && gone(answer[0].Error):
			e.gone()
		case gone(err), errors.Is(err, zk.ErrNodeExists), errors.Is(err, zk.ErrBadVersion):
			// They have been raised since, perhaps by an earlier copy of this request.
			if now, err = e.s.tokensOf(ctx, e.dir); err != nil {
				return err
			}
		default:
			return err
		}
	}
}

// tokens is the content of tokensNode, and its version: -1 if there is no such node.
type tokens struct {
	raised.Tokens
	version int32
}

// tokensOf returns what is added to the czxids of a lock.
func (s *session) tokensOf(ctx context.Context, dir string) (t tokens, err error) {
	node := dir + "/" + tokensNode
	found, err := s.get(ctx, node)
	switch {
	case gone(err):
		return tokens{version: -1}, nil
	case err != nil:
		return t, err
	}
	if t.Tokens, err = raised.Parse(found.text); err != nil {
		return t, fmt.Errorf("zookeeper: %s: %w", node, err)
	}
	t.version = found.stat.Version
	return t, nil
}

// Release implements [driver.Hold].
func (e *entry) Release(ctx context.Context, _ time.Duration) error {
	switch e.current() {
	case none:
		return errGone
	case sent:
		return e.Undo(ctx)
	case queued, held, leaving:
	}
	err := e.remove(ctx, true)
	if err != nil && e.s.isOver() && !e.settled() { // its node may still be there
		err = cmp.Or(e.s.stays(ctx, e), err)
	}
	return err
}

// Undo implements [driver.Hold].
//
// Once the session has another connection, a request that was not answered has
// either been carried out or never will be: a server drops the connections of a
// session that comes back on another one, and the leader refuses what a server
// passes on for a session that has moved. A look that begins with a sync then
// sees the node if it is there.
//
// A session that is over for this client may go on at the service, and keep the node
// there, until its timeout has passed.
func (e *entry) Undo(ctx context.Context) error {
	err := e.takeBack(ctx)
	switch {
	case e.settled():
		return nil
	case e.s.isOver():
		return e.s.stays(ctx, e)
	}
	return err
}

func (e *entry) takeBack(ctx context.Context) error {
	e.mu.Lock()
	e.void = true
	sending := e.sending
	e.mu.Unlock()
	if sending != nil { // it ends with the answer, or with the connection
		select {
		case <-sending:
		case <-e.s.Context().Done():
			return e.ended()
		case <-ctx.Done():
			return unanswered(ctx)
		}
	}
	if e.current() == sent {
		q, err := e.s.queueOf(ctx, e.dir, e.id, true)
		if err != nil {
			return err
		}
		if !q.found {
			e.become(none)
			return nil
		}
		e.found(e.dir+"/"+q.self.name, 0)
	}
	if e.settled() {
		return nil
	}
	return e.remove(ctx, false)
}

// remove deletes the node, whose path is known. With patience, it waits for the end of
// an outage while the session may live, and then repeats the deletion: that finds what
// the first one did (R11).
func (e *entry) remove(ctx context.Context, patience bool) error {
	removal := make(chan struct{})
	defer close(removal)
	e.mu.Lock()
	path := e.path
	e.removal = removal
	if e.guard != nil {
		e.guard.Stop()
	}
	e.mu.Unlock()
	e.become(leaving)
	for again := false; ; again = true {
		err := e.s.do(ctx, func(c *zk.Conn) error { return c.Delete(path, -1) })
		switch {
		case err == nil, gone(err):
			e.become(none)
			if gone(err) && !again {
				return errGone
			}
			return nil
		case e.s.isOver():
			return e.ended()
		case isRefusal(err):
			return refusing(err, "it refuses to remove %s, which stays until the session ends: "+
				"give this client the right to delete under %s", path, e.dir)
		case !patience, ctx.Err() != nil:
			return err
		}
		e.s.pause(firstPause) // the next try may fail at once, too
		if e.s.reconnected(ctx) != nil {
			return err
		}
	}
}
