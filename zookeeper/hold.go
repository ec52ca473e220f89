package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/golockers/locker"
	"github.com/golockers/locker/internal/raised"
)

var (
	_ locker.Hold        = (*place)(nil)
	_ locker.TakeBacker  = (*place)(nil)
	_ locker.Aser        = (*place)(nil)
	_ locker.TokenRaiser = (*place)(nil)
)

// Node is what a lock is held by, for [locker.Lease.As]:
//
//	var node zookeeper.Node
//	if lease.As(&node) { … }
type Node struct {
	Path    string // of the node
	Czxid   int64  // of the transaction that created it: the fencing token, unless tokens of the name were raised
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

// guardAfter is how long a lock is held at most before its node is watched. One
// that is held for a moment only is not worth the request.
const guardAfter = 10 * time.Millisecond

// hold makes the place a holder's.
func (s *session) hold(p *place) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case s.isOver() || s.held == nil:
		return s.over()
	case p.life != queued:
		return fmt.Errorf("zookeeper: %w: %w", errPlaceLost, locker.ErrUnavailable)
	}
	p.life = held
	s.held[p] = struct{}{}
	if !p.guarded {
		p.guard = time.AfterFunc(guardAfter, func() { s.spawn(p.watchAgain) })
	}
	return nil
}

// watchOwn sets the watch on the place's own node.
func (p *place) watchOwn(ctx context.Context) (*watch, error) {
	_, path := p.state()
	w, err := p.s.watch(ctx, path, p)
	if gone(err) {
		p.gone()
	} else if err == nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.guarded = true
	}
	return w, err
}

// watchAgain sets the watch on a holder's node; if that fails, Renew does.
func (p *place) watchAgain() {
	if life, _ := p.state(); life == held {
		_, _ = p.watchOwn(p.s.ctx)
	}
}

// happened is called by the driver when something happened to the node.
func (p *place) happened(gone bool) {
	if gone {
		p.gone()
		return
	}
	// Somebody wrote to it: that used the watch up.
	p.mu.Lock()
	p.guarded = false
	p.mu.Unlock()
	p.s.spawn(p.watchAgain)
}

// gone notes that the node is not there any more, and tells the holder, unless
// it was removed on purpose. It does not block.
func (p *place) gone() {
	p.mu.Lock()
	was := p.life
	if was == queued || was == held {
		p.life = lost
		p.settle()
	}
	p.mu.Unlock()
	if was == held && p.lost != nil {
		p.lost()
	}
}

// Renew implements [locker.Hold]: it costs no request once the node is watched,
// since the session's heartbeat renews all its holds.
func (p *place) Renew(ctx context.Context) (locker.Validity, error) {
	p.mu.Lock()
	guard := p.life == held && !p.guarded
	p.mu.Unlock()
	if guard && !p.s.isOver() {
		if _, err := p.watchOwn(ctx); err != nil && !gone(err) && !p.s.isOver() {
			return locker.Validity{}, err
		}
	}
	life, _ := p.state()
	if p.s.isOver() {
		return locker.Validity{}, p.ended()
	}
	if life != held {
		return locker.Validity{}, fmt.Errorf("zookeeper: its node is gone: %w", locker.ErrLost)
	}
	v, err := p.s.validity(ctx, time.Now())
	if err != nil && p.s.isOver() {
		return locker.Validity{}, p.ended()
	}
	return v, err
}

// ended is the error of a hold whose session is over.
func (p *place) ended() error {
	return fmt.Errorf("zookeeper: %w: %w", context.Cause(p.s.ctx), locker.ErrLost)
}

// RaiseToken implements [locker.TokenRaiser]. What is added to czxids is kept in a
// lasting node beside those of the queue: so the service does not remove the lock's
// container any more. The holder's node is written to in the same transaction, which
// fails if that is gone, and tells the next in line to look.
func (p *place) RaiseToken(ctx context.Context, token uint64) error {
	node := p.dir + "/" + tokensNode
	for now := p.tokens; ; {
		life, path := p.state()
		if p.s.isOver() {
			return p.ended()
		}
		if life != held {
			return fmt.Errorf("zookeeper: its node is gone: %w", locker.ErrLost)
		}
		then, err := now.Raise(p.czxid, token)
		if err != nil {
			return err
		}
		answer, err := ask(ctx, p.s, func(c *zk.Conn) ([]zk.MultiResponse, error) {
			if then == now.Tokens { // it has to be held all the same
				_, _, err := c.Get(path)
				return []zk.MultiResponse{{Error: err}}, err
			}
			var put any = &zk.SetDataRequest{Path: node, Data: []byte(then.String()), Version: now.version}
			if now.version < 0 {
				put = &zk.CreateRequest{Path: node, Data: []byte(then.String()), Acl: p.s.backend.acl}
			}
			return c.Multi(&zk.SetDataRequest{Path: path, Data: []byte(p.label), Version: -1}, put)
		})
		switch {
		case err == nil:
			return nil
		case len(answer) > 0 && gone(answer[0].Error):
			p.gone()
		case gone(err), errors.Is(err, zk.ErrNodeExists), errors.Is(err, zk.ErrBadVersion):
			// They were raised since, perhaps by this request, sent before.
			if now, err = p.s.tokensOf(ctx, p.dir); err != nil {
				return err
			}
		default:
			return err
		}
	}
}

// tokens is what the node of that name says, and its version; -1 if there is none.
type tokens struct {
	raised.Tokens
	version int32
}

// tokensOf returns what is added to the czxids of a lock.
func (s *session) tokensOf(ctx context.Context, dir string) (t tokens, err error) {
	node := dir + "/" + tokensNode
	var stat *zk.Stat
	text, err := ask(ctx, s, func(c *zk.Conn) (text []byte, err error) {
		text, stat, err = c.Get(node)
		return text, err
	})
	switch {
	case gone(err):
		return tokens{version: -1}, nil
	case err != nil:
		return t, err
	}
	if t.Tokens, err = raised.Parse(string(text)); err != nil {
		return t, fmt.Errorf("zookeeper: %s: %w", node, err)
	}
	t.version = stat.Version
	return t, nil
}

// Release implements [locker.Hold].
func (p *place) Release(ctx context.Context) error {
	switch life, _ := p.state(); life {
	case absent, unknown:
		return p.TakeBack(ctx)
	case lost:
		return fmt.Errorf("zookeeper: its node is gone: %w", locker.ErrLost)
	case freed:
		return fmt.Errorf("zookeeper: it was released before: %w", locker.ErrLost)
	case queued, held:
	}
	return p.remove(ctx, true)
}

// TakeBack implements [locker.TakeBacker].
//
// A request that was not answered has been carried out, or never will be, once
// the session has another connection: a server drops the connections of a
// session that comes back on another one, and the leader refuses what a server
// passes on for a session that has moved. A look that begins with a sync then
// sees the node if it is there.
func (p *place) TakeBack(ctx context.Context) error {
	if p.s.isOver() {
		return nil // its nodes go with it
	}
	p.mu.Lock()
	p.void = true
	sending := p.sending
	p.mu.Unlock()
	if sending != nil { // it ends with the answer, or with the connection
		select {
		case <-sending:
		case <-p.s.ctx.Done():
			return nil
		case <-ctx.Done():
			return unanswered(ctx)
		}
	}
	if life, _ := p.state(); life == unknown {
		q, err := p.s.queueOf(ctx, p.dir, p.id, true)
		if err != nil {
			return p.unlessOver(err)
		}
		if !q.found {
			p.become(absent)
			return p.unlessOver(p.removeUnused(ctx))
		}
		p.mu.Lock()
		p.life, p.path = queued, p.dir+"/"+q.self.name
		p.mu.Unlock()
	}
	if life, _ := p.state(); life == queued || life == held {
		if err := p.remove(ctx, false); !errors.Is(err, locker.ErrLost) {
			return p.unlessOver(err)
		}
	}
	return nil
}

func (p *place) unlessOver(err error) error {
	if p.s.isOver() {
		return nil
	}
	return err
}

// remove deletes the node, whose path is known. With patience, an outage is sat
// out while the session may live: the second deletion then finds what the first
// one did (R11).
func (p *place) remove(ctx context.Context, patience bool) error {
	p.mu.Lock()
	p.life = queued // it is nobody's any more, and its end is not told
	path := p.path
	if p.guard != nil {
		p.guard.Stop()
	}
	p.mu.Unlock()
	p.s.mu.Lock()
	delete(p.s.held, p)
	p.s.mu.Unlock()
	for again := false; ; again = true {
		err := p.s.do(ctx, func(c *zk.Conn) error { return c.Delete(path, -1) })
		switch {
		case err == nil, gone(err) && again:
			p.become(freed)
			return nil
		case gone(err):
			p.become(lost)
			return fmt.Errorf("zookeeper: its node was gone: %w", locker.ErrLost)
		case p.s.isOver():
			return p.ended()
		case isRefusal(err):
			return refusing(fmt.Sprintf("it refuses to remove %s, which stays until the session ends: give this client the right to delete under %s", path, p.dir), err)
		case !patience || p.s.sitOut(ctx) != nil:
			return err
		}
	}
}

// removeUnused removes the lock's own node, which may have been made for this
// place and never had another in it: the service removes only containers that
// have had one. A node of anybody in it forbids that, and whoever comes with one
// when it is gone makes it again. So it does no harm at any moment.
func (p *place) removeUnused(ctx context.Context) error {
	err := p.s.do(ctx, func(c *zk.Conn) error { return c.Delete(p.dir, -1) })
	if gone(err) || errors.Is(err, zk.ErrNotEmpty) || isRefusal(err) {
		return nil // an empty node that may not be removed is in nobody's way
	}
	return err
}
