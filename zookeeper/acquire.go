package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"path"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/golockers/locker/driver"
	answers "github.com/golockers/locker/internal/refusal"
)

// Acquire implements [driver.Backend]. It waits in the lock's queue if
// req.Wait is set.
func (b *Backend) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	if err := ctx.Err(); err != nil {
		return driver.Grant{}, err
	}
	dir, id := b.dir(req.Name), req.Owner+lockMark
	if req.Shared {
		id = req.Owner + readMark
	}
	if !req.Wait { // without room: many may look at once
		s, err := b.join(ctx, 0)
		if err == nil {
			err = s.peek(ctx, dir, id, req.Shared)
			s.leave(0)
		}
		if err != nil {
			return answers.Answer(driver.Grant{}, err)
		}
	}
	room := pathBytes(dir + "/" + id + sequenceDigits)
	s, err := b.join(ctx, room)
	if err != nil {
		return driver.Grant{}, err
	}
	e := &entry{
		s: s, dir: dir, id: id, shared: req.Shared, label: req.Label, lost: req.Lost,
		tokens: tokens{version: -1}, room: room,
	}
	var g driver.Grant
	others, err := e.enter(ctx, req.TTL)
	switch {
	case err == nil && others && req.Wait:
		err = e.wait(ctx, req.Queued)
	case err == nil && others:
		err = e.isFirst(ctx)
	}
	if err == nil {
		g, err = e.grant(ctx)
	}
	switch {
	case err == nil:
		return g, nil
	case e.settled():
		return answers.Answer(driver.Grant{}, err)
	}
	return answers.Answer(driver.Grant{Hold: e}, err)
}

// peek returns driver.ErrHeld if somebody in the queue is in the way, so that a caller
// that does not wait creates no node. If it were cut off just then, its node would
// keep out those behind it for a session's timeout. A server that lags behind may
// show a holder that has left, so a second look follows a sync. Between this look
// and the creation of the node, somebody else may come and be ahead of it.
func (s *session) peek(ctx context.Context, dir, id string, shared bool) error {
	for _, sync := range []bool{false, true} {
		q, err := s.queueOf(ctx, dir, id, sync)
		if err != nil {
			return err
		}
		// If this very attempt has a node there, the request was repeated (R11).
		if q.found || len(inTheWay(q.all, shared)) == 0 {
			return nil
		}
	}
	return driver.ErrHeld
}

// enter creates the node, and reports whether others may be in the queue. The same
// transaction writes to the lock's node: the answer says how many nodes are in the
// queue, and has the number of the transaction, which is the czxid of the new node.
// So a lock that nobody else wants costs this one request. (With one request to read
// the queue and another for the czxid, 256 callers reached 0.55 of the rate of a bare
// creation and deletion; with one transaction, 0.95.)
func (e *entry) enter(ctx context.Context, ttl time.Duration) (others bool, err error) {
	if err = e.s.lasts(ttl); err == nil {
		err = e.s.online(ctx)
	}
	if err != nil {
		e.become(none)
		return false, err
	}
	e.become(sent)
	e.asked = time.Now()
	answer, err := ask(ctx, e.s, func(c *zk.Conn) ([]zk.MultiResponse, error) {
		sent, acl := make(chan struct{}), e.s.backend.acl
		defer close(sent)
		e.mu.Lock()
		void := e.void
		e.sending = sent
		e.mu.Unlock()
		if void { // it was taken back before it was sent: nobody waits for it
			return nil, zk.ErrConnectionClosed
		}
		for {
			answer, err := c.Multi(
				&zk.CreateRequest{
					Path: e.dir + "/" + e.id, Data: []byte(e.label),
					Acl: acl, Flags: zk.FlagEphemeral | zk.FlagSequence,
				},
				&zk.SetDataRequest{Path: e.dir, Version: -1})
			if !gone(err) {
				return answer, err
			}
			// The name was never used, or its empty container has been reaped. The node is
			// created even if the caller has left by then, because the service removes
			// only containers that have had a child.
			if err := makeParents(c, e.dir, acl); err != nil {
				return nil, err
			}
		}
	})
	// The refusal may be the reason why the session is over, and say nothing about this request.
	if isRefusal(err) && (!e.s.isOver() || e.unsent()) {
		e.become(none)
	}
	if err == nil && (len(answer) != 2 || answer[1].Stat == nil) {
		err = fmt.Errorf("zookeeper: the answer to a creation cannot be understood: %w", driver.ErrUnavailable)
	}
	if err != nil {
		return false, err
	}
	e.found(answer[0].String, answer[1].Stat.Mzxid)
	if n, _ := parseNode(path.Base(answer[0].String)); n.spent() {
		return false, fmt.Errorf("zookeeper: %s has had two thousand million nodes, "+
			"and the servers count no further: remove it at a time when nobody locks the name "+
			"(and raise its tokens again if they were raised): %w",
			e.dir, driver.ErrRefused)
	}
	return answer[1].Stat.NumChildren > 1, nil
}

// unsent reports whether the creation has not been sent, and makes sure that it is not sent later.
func (e *entry) unsent() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.void = e.void || e.sending == nil
	return e.sending == nil
}

// grant makes a hold of an entry that has nobody in its way. A sharer has no token: the
// czxids of those that hold together differ, and to find what they have in common would
// take one more request.
func (e *entry) grant(ctx context.Context) (driver.Grant, error) {
	v, err := e.s.validity(ctx, e.asked)
	if err == nil && e.raised && !e.shared {
		// They are final: no earlier holder can raise them any more.
		e.tokens, err = e.s.tokensOf(ctx, e.dir)
	}
	if err == nil {
		err = e.hold()
	}
	g := driver.Grant{Hold: e, Validity: v}
	if !e.shared {
		g.Token = e.tokens.Of(e.czxid)
	}
	return g, err
}

// makeParents creates dir and what is missing above it, as containers, which the
// service removes when they are empty. It begins below, since the right to create may
// begin at any level.
func makeParents(c *zk.Conn, dir string, acl []zk.ACL) error {
	_, err := c.CreateContainer(dir, nil, zk.FlagContainer, acl)
	if up := path.Dir(dir); gone(err) && up != "/" {
		if err = makeParents(c, up, acl); err != nil {
			return err
		}
		if _, err = c.CreateContainer(dir, nil, zk.FlagContainer, acl); gone(err) {
			return nil // what is above was reaped again at once: the request that needs dir finds out
		}
	}
	if errors.Is(err, zk.ErrNodeExists) {
		return nil
	}
	return err
}
