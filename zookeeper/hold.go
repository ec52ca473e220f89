package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/golockers/locker"
)

var _ locker.Hold = (*place)(nil)

// Node is what a lock is held by, for [locker.Lease.As]:
//
//	var node zookeeper.Node
//	if lease.As(&node) { … }
type Node struct {
	Path    string // of the node
	Czxid   int64  // of the transaction that created it: the fencing token
	Session int64  // the session that it lives as long as
}

// As implements what [locker.Lease.As] asks of a hold, for a *[Node].
func (p *place) As(target any) bool {
	n, ok := target.(*Node)
	if ok {
		p.mu.Lock()
		defer p.mu.Unlock()
		n.Path, n.Czxid = p.path, p.czxid
		n.Session, _ = p.s.granted()
	}
	return ok
}

// Renew implements [locker.Hold]: it costs no request once the node is watched,
// since the session's heartbeat renews all its holds.
func (p *place) Renew(ctx context.Context) (locker.Validity, error) {
	p.mu.Lock()
	over, guarded := p.over || p.freed || p.cleared != nil, p.guarded
	p.mu.Unlock()
	if !over && !guarded && !p.s.isDead() {
		if err := p.watchOwn(ctx); err != nil && !p.s.isDead() {
			return locker.Validity{}, err
		}
		p.mu.Lock()
		over = p.over
		p.mu.Unlock()
	}
	switch {
	case over:
		return locker.Validity{}, fmt.Errorf("zookeeper: its node is gone: %w", locker.ErrLost)
	case p.s.isDead():
		return locker.Validity{}, p.ended()
	}
	v, err := p.s.validity(ctx, time.Now())
	if err != nil && p.s.isDead() {
		return locker.Validity{}, p.ended()
	}
	return v, err
}

// ended is the error of a hold whose session is over.
func (p *place) ended() error {
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	return fmt.Errorf("zookeeper: %w: %w", p.s.err, locker.ErrLost)
}

// Release implements [locker.Hold]. For a hold that came beside an error, nil
// means that nothing is left and nothing can come.
func (p *place) Release(ctx context.Context) error {
	p.mu.Lock()
	freed, cleared := p.freed, p.cleared
	p.mu.Unlock()
	switch {
	case cleared != nil:
		if cleared.refused() {
			cleared = p.clear() // again: the right may have been given
		}
		select {
		case <-cleared.done:
			return cleared.err
		case <-ctx.Done():
			return unanswered(ctx)
		}
	case freed:
		return fmt.Errorf("zookeeper: it was released before: %w", locker.ErrLost)
	}
	err := p.remove(ctx)
	switch {
	case err == nil:
		return nil
	case gone(err):
		return fmt.Errorf("zookeeper: its node was gone: %w", locker.ErrLost)
	case p.s.isDead():
		return p.ended()
	}
	var r *refusal
	if errors.As(err, &r) {
		p.mu.Lock()
		p.freed = false // it is still there
		p.mu.Unlock()
		return err
	}
	p.clear()
	return err
}

// remove deletes the node, whose path is known.
func (p *place) remove(ctx context.Context) error {
	p.mu.Lock()
	p.freed = true // before the request: its watch fires
	path := p.path
	p.mu.Unlock()
	p.s.forget(p)
	_, err := ask(ctx, p.s, func(c *zk.Conn) (struct{}, error) { return struct{}{}, c.Delete(path, -1) })
	var r *refusal
	if errors.As(err, &r) {
		err = p.s.refusing(fmt.Sprintf("it refuses to remove %s, which stays until the session ends: give this client the right to delete under %s", path, p.dir), err)
	}
	return err
}

// clearing is the removal of a place in the background.
type clearing struct {
	done chan struct{} // closed when err is set
	err  error         // why the service refuses it; nil: nothing is left and nothing can come
}

// refused reports whether the removal has ended, and not in success.
func (c *clearing) refused() bool {
	select {
	case <-c.done:
		return c.err != nil
	default:
		return false
	}
}

// clear removes in the background what there is of the place, and goes on
// until it is certain that there is nothing (R7), or that the service refuses
// to remove it; the next clear then tries again. It does not block.
func (p *place) clear() *clearing {
	p.mu.Lock()
	if p.cleared != nil && !p.cleared.refused() {
		defer p.mu.Unlock()
		return p.cleared
	}
	c := &clearing{done: make(chan struct{})}
	p.cleared = c
	p.mu.Unlock()
	p.s.forget(p)
	if !p.s.spawn(func() {
		defer close(c.done)
		c.err = p.clearUp()
	}) {
		close(c.done) // the session is over, and its nodes with it
	}
	return c
}

// clearUp returns when no node of the place is there, or can still come, or
// the session is over; the error is that of a service that refuses to remove
// what is there.
//
// A request that created it and was not answered has either been carried out
// or never will be, once the session has another connection: a server drops
// the connections of a session that comes back on another one, and the leader
// refuses what a server passes on for a session that has moved. A look that
// begins with a sync then sees the node if it is there. Another look, a
// little later, costs little.
func (p *place) clearUp() error {
	looks := 2
	for wait := firstPause; ; wait = min(2*wait, lastPause) {
		err := p.clearOnce(&looks)
		switch {
		case err == nil && looks == 0, p.s.isDead():
			return nil
		case err == nil:
			p.s.pause(p.s.interval() / 2)
			continue
		}
		var r *refusal
		if errors.As(err, &r) {
			p.s.backend.opts.Logger.Warn("zookeeper: a node cannot be removed and stays until the session ends", "lock", p.dir, "error", err)
			return err
		}
		p.s.pause(wait)
	}
}

// clearOnce makes one try. It lowers looks for each time that nothing was
// found, and sets it to 0 when the node is gone for certain.
func (p *place) clearOnce(looks *int) error {
	p.mu.Lock()
	sent, path := p.sent, p.path
	p.mu.Unlock()
	if sent != nil {
		// It ends with the answer, or with the connection.
		select {
		case <-sent.done:
		case <-p.s.dead:
			return p.s.over()
		}
		p.mu.Lock()
		p.sent = nil
		if sent.err == nil {
			p.path = sent.v.path
		}
		path = p.path
		p.mu.Unlock()
		if sent.err != nil && !disconnection(sent.err) {
			*looks = 0 // refused: there is no node
			return nil
		}
	}
	if err := p.s.reconnected(p.s.ctx); err != nil {
		return err
	}
	if path == "" {
		found, err := p.lookUp(p.s.ctx)
		if err == nil && !found {
			*looks--
		}
		if err != nil || !found {
			return err
		}
	}
	err := p.remove(p.s.ctx)
	if err == nil || gone(err) {
		*looks = 0
		return nil
	}
	return err
}
