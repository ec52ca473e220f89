package zookeeper

import (
	"context"
	"errors"

	"github.com/go-zookeeper/zk"
)

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
		done, err := p.clearOnce(&looks)
		switch {
		case done, p.s.isDead():
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

// clearOnce makes one try, and reports whether it was the last one. It lowers
// looks for each time that nothing was found.
func (p *place) clearOnce(looks *int) (done bool, err error) {
	p.mu.Lock()
	sent := p.sent
	p.mu.Unlock()
	if sent != nil {
		// It ends with the answer, or with the connection.
		select {
		case <-sent.done:
		case <-p.s.dead:
			return false, p.s.over()
		}
		p.mu.Lock()
		p.sent = nil
		if sent.err == nil {
			p.path = sent.v.path
		} else if mayBeCreated(sent.err) {
			p.unsure = true
		}
		p.mu.Unlock()
	}
	p.mu.Lock()
	path, unsure, made := p.path, p.unsure, p.made
	p.mu.Unlock()
	if path == "" && !unsure && !made {
		return true, nil
	}
	if err := p.s.reconnected(p.s.ctx); err != nil {
		return false, err
	}
	if path == "" && unsure && *looks > 0 {
		found, err := p.lookUp(p.s.ctx)
		if err != nil {
			return false, err
		}
		if !found {
			*looks--
			if *looks > 0 {
				return false, nil
			}
		}
		path = p.nodePath()
	}
	if path == "" {
		if made {
			err = p.removeUnused(p.s.ctx)
		}
		return err == nil, err
	}
	err = p.remove(p.s.ctx)
	if err == nil || gone(err) {
		return true, nil
	}
	return false, err
}

// removeUnused removes the lock's own node, which was made for this place, and
// had no node of it: the service removes only containers that have had
// one. A node of anybody in it, holder or waiter, forbids that; and whoever has
// found it, and comes with a node when it is gone, makes it again. So it does no
// harm at any moment, however late it arrives.
func (p *place) removeUnused(ctx context.Context) error {
	_, err := ask(ctx, p.s, func(c *zk.Conn) (struct{}, error) { return struct{}{}, c.Delete(p.dir, -1) })
	var r *refusal
	switch {
	case gone(err), errors.Is(err, zk.ErrNotEmpty):
		return nil
	case errors.As(err, &r):
		// Nothing that is in anybody's way.
		p.s.backend.opts.Logger.Debug("zookeeper: an empty node cannot be removed", "lock", p.dir, "error", err)
		return nil
	}
	return err
}
