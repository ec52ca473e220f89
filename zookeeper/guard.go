package zookeeper

import (
	"context"
	"time"

	"github.com/go-zookeeper/zk"
)

// happened is called by the driver when something happened to the node.
func (p *place) happened(event zk.EventType) {
	if event != zk.EventNodeDeleted {
		// Somebody wrote to it: that used the watch up.
		p.s.spawn(p.watchAgain)
		return
	}
	p.gone()
}

// isHeld reports whether the place was neither given up nor lost.
func (p *place) isHeld() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.freed && p.cleared == nil && !p.over
}

// watchAgain sets the watch on a holder's node, in the background.
func (p *place) watchAgain() {
	for {
		if !p.isHeld() || p.s.isDead() || p.watchOwn(p.s.ctx) == nil {
			return
		}
		p.s.pause(p.s.interval())
	}
}

// watchOwn sets the watch on a holder's node; if the node is gone, it tells.
func (p *place) watchOwn(ctx context.Context) error {
	p.mu.Lock()
	path := p.path
	p.mu.Unlock()
	w := p.s.watches.add(path, p.happened)
	_, err := p.s.watches.read(ctx, path)
	if err != nil {
		p.s.watches.remove(path, w)
	}
	if gone(err) {
		p.gone()
		return nil
	}
	if err == nil {
		p.mu.Lock()
		p.guarded = true
		p.mu.Unlock()
	}
	return err
}

// gone notes that the node is not there any more, and tells the holder, unless
// it was removed on purpose. It does not block.
func (p *place) gone() {
	p.mu.Lock()
	if p.freed || p.cleared != nil || p.over {
		p.mu.Unlock()
		return
	}
	p.over = true
	granted := p.granted
	p.mu.Unlock()
	select {
	case p.again <- struct{}{}:
	default:
	}
	if granted && p.lost != nil {
		p.lost()
	}
}

// forgetOwn ends the interest of a wait in its own node; a holder's begins anew.
func (p *place) forgetOwn() {
	p.mu.Lock()
	path := p.path
	p.mu.Unlock()
	if p.own != nil {
		p.s.watches.remove(path, p.own)
	}
}

// guardAfter is how long a lock is held at most before its node is watched. One
// that is held for a moment only is not worth the watch, nor a timer of its own.
const guardAfter = 10 * time.Millisecond

// guard arranges for the node of a holder to be watched.
func (s *session) guard(p *place) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fresh = append(s.fresh, p)
	if len(s.fresh) > 1 {
		return
	}
	time.AfterFunc(guardAfter, func() {
		s.mu.Lock()
		fresh := s.fresh
		s.fresh = nil
		s.mu.Unlock()
		for _, p := range fresh {
			if p.isHeld() {
				s.spawn(p.watchAgain)
			}
		}
	})
}
