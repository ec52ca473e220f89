package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/golockers/locker"
)

// run keeps the session, until it is over and all its goroutines have ended.
func (s *session) run() {
	if err := s.prepare(); err != nil {
		s.end(err)
	} else {
		s.keep()
	}
	s.closeDriver()
	s.goroutines.Wait()
	s.backend.ended(s)
}

// prepare authenticates and creates the session's own node. It returns an
// error if the service refuses that, or the session is over.
func (s *session) prepare() error {
	b, authenticated := s.backend, 0
	for {
		if err := s.reconnected(s.ctx); err != nil {
			return err
		}
		err := func() error {
			// The driver repeats credentials on each connection, once they
			// have been accepted.
			for ; authenticated < len(b.opts.Auth); authenticated++ {
				a := b.opts.Auth[authenticated]
				if _, err := ask(s.ctx, s, func(c *zk.Conn) (struct{}, error) {
					return struct{}{}, c.AddAuth(a.Scheme, []byte(a.Credentials))
				}); err != nil {
					return err
				}
			}
			return s.write(func(c *zk.Conn) error { return s.createBeat(c) })
		}()
		switch {
		case err == nil:
			close(s.ready)
			s.mu.Lock()
			s.change()
			s.mu.Unlock()
			return nil
		case errors.Is(err, zk.ErrNoNode):
			if err := s.makeParents(s.ctx, b.prefix); err != nil && !errors.Is(err, locker.ErrUnavailable) {
				return s.forbidden(err)
			}
		case errors.Is(err, zk.ErrNoAuth), errors.Is(err, zk.ErrAuthFailed), errors.Is(err, zk.ErrInvalidACL):
			return s.forbidden(err)
		default:
			// Lost with the connection, or the service is busy with itself.
			s.pause(s.interval() / 4)
		}
	}
}

// forbidden says what the service refuses, and what to do.
func (s *session) forbidden(err error) error {
	what := fmt.Sprintf("it is not allowed to create nodes under %s: check the credentials, and the ACL of that node or of its nearest parent", s.backend.prefix)
	switch {
	case errors.Is(err, zk.ErrAuthFailed):
		what = "it refuses the credentials"
	case errors.Is(err, zk.ErrInvalidACL):
		what = "it refuses the ACL for new nodes: give credentials with it, or another ACL"
	}
	return &refusal{fmt.Errorf("zookeeper %s: %s: %w", strings.Join(s.backend.servers, ","), what, errors.Unwrap(err))}
}

func (s *session) createBeat(c *zk.Conn) error {
	_, err := c.Create(s.node, nil, zk.FlagEphemeral, s.backend.acl)
	if errors.Is(err, zk.ErrNodeExists) {
		return nil // an answer was lost: nobody else knows the name
	}
	return err
}

// keep writes to the session's node, every tenth of the timeout and at once on
// each new connection, until the session is over.
func (s *session) keep() {
	next := time.Now().Add(s.interval())
	for {
		s.mu.Lock()
		changed, fresh := s.changed, s.link != nil && s.link == s.proof.link && len(s.proof.beats) == 0
		s.mu.Unlock()
		if !fresh {
			timer := time.NewTimer(time.Until(next))
			select {
			case <-s.dead:
				timer.Stop()
				return
			case <-changed:
				timer.Stop()
				continue
			case <-timer.C:
			}
		}
		if s.reconnected(s.ctx) != nil {
			return
		}
		next = time.Now().Add(s.interval())
		err := s.write(func(c *zk.Conn) error {
			_, err := c.Set(s.node, nil, -1)
			return err
		})
		if errors.Is(err, zk.ErrNoNode) {
			// Somebody has removed it, and the session is still there.
			err = s.write(func(c *zk.Conn) error { return s.createBeat(c) })
		}
		if err != nil && s.ctx.Err() == nil {
			s.backend.opts.Logger.Debug("zookeeper: heartbeat", "error", err)
			s.pause(s.interval() / 10)
		}
	}
}

// write makes one write that counts as a heartbeat. A connection that does not
// answer is given up, so that the driver tries another server.
func (s *session) write(f func(*zk.Conn) error) error {
	s.mu.Lock()
	l := s.link
	s.mu.Unlock()
	if l == nil {
		return zk.ErrConnectionClosed
	}
	sent := time.Now()
	// Not through the slots: the heartbeat never waits for others.
	p := &pending[struct{}]{done: make(chan struct{})}
	if !s.spawn(func() {
		p.err = f(s.conn)
		close(p.done)
	}) {
		return s.over()
	}
	timer := time.NewTimer(s.backend.patience())
	defer timer.Stop()
	select {
	case <-p.done:
	case <-timer.C:
		s.linkFailed(l.server, fmt.Errorf("no answer to a write after %v", s.backend.patience()))
		l.abort()
		select {
		case <-p.done:
		case <-s.dead:
			return s.over()
		}
	case <-s.dead:
		return s.over()
	}
	if p.err != nil {
		return s.failure(p.err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.link == l {
		s.proof.ack(l, beat{sent: sent, acked: time.Now()})
		s.change()
	}
	return nil
}

// interval is the time between two heartbeats.
func (s *session) interval() time.Duration {
	_, timeout := s.granted()
	if timeout == 0 {
		timeout = s.backend.opts.SessionTimeout
	}
	return timeout / 10
}

func (s *session) pause(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-s.dead:
	}
}

// validity returns what a hold of this session is worth. It waits for a
// heartbeat if the last one is too long ago, until ctx is done. since is when
// the hold, or its renewal, was asked for.
//
// The engine is told since, from which it counts MaxHold, and the age of the
// proof as a drift: what comes out is the end of the timeout as proven, less
// the usual allowance for clocks. since carries both clocks, and the age is the
// greater of the two, so that it comes out so, or earlier, in each of them (R4).
func (s *session) validity(ctx context.Context, since time.Time) (locker.Validity, error) {
	for {
		s.mu.Lock()
		proven, acked, timeout, changed := s.proof.since, s.proof.acked, s.timeout, s.changed
		s.mu.Unlock()
		if s.isDead() {
			return locker.Validity{}, s.over()
		}
		now := time.Now()
		if elapsed(acked, now) < timeout/4 && elapsed(proven, now) < 3*timeout/4 {
			drift := timeout/100 + 2*time.Millisecond
			return locker.Validity{Since: since, TTL: timeout, Drift: drift + max(0, elapsed(proven, since))}, nil
		}
		select {
		case <-changed:
		case <-s.dead:
		case <-ctx.Done():
			return locker.Validity{}, fmt.Errorf("zookeeper: no heartbeat was answered for %v: %w: %w",
				elapsed(acked, now).Round(time.Millisecond), ctx.Err(), locker.ErrUnavailable)
		}
	}
}
