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
