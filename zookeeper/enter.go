package zookeeper

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-zookeeper/zk"
)

// enter creates the node. When it returns without an error, the path is known.
func (p *place) enter(ctx context.Context, label string) error {
	for {
		if err := p.s.online(ctx); err != nil {
			return err
		}
		// The service answers a session in the order of its requests: a look at
		// the queue that is sent right behind shows the node, and saves a round
		// trip. Should it be sent before, it shows that too, and is repeated.
		// Where others are under way it saves nothing, and costs more.
		var early *pending[[]string]
		send, look := func() {}, p.s.isBusy()
		if !look {
			early, send = along(p.s, func(c *zk.Conn) ([]string, error) { return lookAt(c, p.dir) })
		}
		sent, err := start(ctx, p.s, func(c *zk.Conn) (created, error) {
			send()
			path, err := c.Create(p.dir+"/"+p.id+lockMark, []byte(label), zk.FlagEphemeral|zk.FlagSequence, p.s.backend.acl)
			made := created{path: path, czxid: p.s.czxid(path)}
			if err == nil && look {
				made.queue, made.err = lookAt(c, p.dir)
			}
			return made, err
		})
		if err != nil {
			if early != nil {
				<-p.s.slots
			}
			return err
		}
		made, err, known := sent.wait(ctx)
		switch {
		case !known:
			// The caller leaves; the request goes on (R7, R8).
			p.mu.Lock()
			p.sent = sent
			p.mu.Unlock()
			p.clear()
			return err
		case err == nil:
			p.mu.Lock()
			p.path, p.czxid, p.early = made.path, made.czxid, early
			if look {
				p.early = answered(made.queue, made.err)
			}
			p.mu.Unlock()
			return nil
		case errors.Is(err, zk.ErrNoNode):
			// Never used, or a container that was empty and has been reaped.
			if err := p.makeDir(ctx); err != nil {
				return err
			}
		case disconnection(err):
			p.notAnswered()
			return p.find(ctx, err)
		default:
			if mayBeCreated(err) {
				p.notAnswered()
				p.clear()
			}
			return p.s.failure(err)
		}
	}
}

// makeDir makes the lock's node. It is known before the request that the place
// may leave it behind: its caller can give up at any moment from then on.
func (p *place) makeDir(ctx context.Context) error {
	p.mu.Lock()
	p.made = true
	p.mu.Unlock()
	err := p.s.makeParents(ctx, p.dir)
	var r *refusal
	if errors.As(err, &r) {
		p.mu.Lock()
		p.made = false
		p.mu.Unlock()
	}
	return err
}

// notAnswered notes that a creation may have been carried out.
func (p *place) notAnswered() {
	p.mu.Lock()
	p.unsure = true
	p.mu.Unlock()
}

// nodePath returns the place's node; "" if it is not known.
func (p *place) nodePath() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.path
}

// lookTries bounds the connections on which find looks, one after the other.
const lookTries = 4

// find looks for a node whose creation was not answered, on the next
// connection. If it is not there, a place is taken anew under another ID, and
// this one is still looked for in the background.
func (p *place) find(ctx context.Context, lost error) error {
	if p.s.isDead() {
		return p.s.over()
	}
	found, err := p.lookUp(ctx)
	for again := 1; again < lookTries && err != nil && disconnection(err) && ctx.Err() == nil && !p.s.isDead(); again++ {
		found, err = p.lookUp(ctx) // that connection broke too; with no server to be reached it says so at once
	}
	if err == nil && found {
		return nil
	}
	p.clear()
	if err == nil {
		return errPlaceLost
	}
	return fmt.Errorf("the connection broke before the answer (%w): %w", lost, err)
}
