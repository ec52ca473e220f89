package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"
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

// peek returns driver.ErrHeld if somebody in the queue is in the way: a caller who does not
// wait enters no node then. Its node would be in the way of those who come
// after, for a session's timeout if it is cut off just then. A server that lags
// behind may show a holder who has left: what it shows is looked at again.
// Between this look and the node somebody else may come, who is then before it.
func (s *session) peek(ctx context.Context, dir, id string, shared bool) error {
	for _, sync := range []bool{false, true} {
		q, err := s.queueOf(ctx, dir, id, sync)
		if err != nil {
			return err
		}
		// With a node of this very attempt there, it is a repeated request (R11).
		if q.found || len(inTheWay(q.all, shared)) == 0 {
			return nil
		}
	}
	return driver.ErrHeld
}

// enter creates the node, and reports whether others may be in the queue. With
// it, in one transaction, it writes to the lock's node: the answer tells how many
// nodes there are in the queue, and the number of the transaction, which is the
// czxid of the new one. So a lock that nobody else wants costs this one request.
// (With a look at the queue as a request of its own, and one at the node for the
// czxid, pairs per second of 256 callers fell to 0.55 of those of a bare creation
// and deletion, from 0.95.)
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
		if void { // it was taken back before it began: nobody waits for it
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
			// Never used, or a container that was empty and has been reaped. A caller
			// may leave, and there will be a node in it all the same: the service
			// removes only containers that have had one.
			if err := makeParents(c, e.dir, acl); err != nil {
				return nil, err
			}
		}
	})
	// It may be why the session is over, and say nothing of this request.
	if isRefusal(err) && (!e.s.isOver() || e.unsent()) {
		e.become(none)
	}
	if err == nil && (len(answer) != 2 || answer[1].Stat == nil) {
		err = fmt.Errorf("zookeeper: the answer to a creation is not one: %w", driver.ErrUnavailable)
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

// unsent reports whether the creation has not begun, and sees to it that it does not.
func (e *entry) unsent() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.void = e.void || e.sending == nil
	return e.sending == nil
}

// grant makes a hold of an entry that nobody is in the way of. A sharer has no token: the
// czxids of those who hold together differ, and what they have in common would take a
// request more.
func (e *entry) grant(ctx context.Context) (driver.Grant, error) {
	v, err := e.s.validity(ctx, e.asked)
	if err == nil && e.raised && !e.shared {
		// No earlier holder can raise them any more.
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

// makeParents creates dir and what is missing above it: as containers, which
// the service removes when they are empty.
func makeParents(c *zk.Conn, dir string, acl []zk.ACL) error {
	path := dir // from below: the right to create may begin anywhere on the way
	for range 2 * strings.Count(dir, "/") {
		_, err := c.CreateContainer(path, nil, zk.FlagContainer, acl)
		switch up := path[:strings.LastIndexByte(path, '/')]; {
		case gone(err) && up != "":
			path = up
		case err != nil && !errors.Is(err, zk.ErrNodeExists):
			return err
		case path == dir:
			return nil
		default:
			next, _, _ := strings.Cut(dir[len(path)+1:], "/")
			path += "/" + next
		}
	}
	return nil // reaped again at once: the next request that needs it will see
}
