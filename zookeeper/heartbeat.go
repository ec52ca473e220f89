package zookeeper

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/clock"
)

// prepare authenticates and creates the session's own node. It returns an error if
// the service refuses that, or the session is over.
func (s *session) prepare() error {
	for authenticated := 0; ; s.pause(s.interval() / 4) {
		if err := s.reconnected(s.ctx); err != nil {
			return err
		}
		err := s.introduce(&authenticated)
		switch {
		case err == nil:
			s.mu.Lock()
			defer s.mu.Unlock()
			close(s.ready)
			s.change()
			return nil
		case s.isOver():
			return s.over()
		case isRefusal(err):
			return err
		}
		// Lost with the connection, or the service is busy with itself.
	}
}

// introduce is one try of prepare. The driver repeats credentials on each
// connection, once they have been accepted: they are counted.
func (s *session) introduce(authenticated *int) error {
	for auth := s.backend.opts.Auth; *authenticated < len(auth); *authenticated++ {
		a := auth[*authenticated]
		add := func(c *zk.Conn) error { return c.AddAuth(a.Scheme, []byte(a.Credentials)) }
		if err := s.do(s.ctx, add); err != nil {
			return s.forbidden(err)
		}
	}
	err := s.write(s.createBeat)
	if gone(err) {
		parents := func(c *zk.Conn) error { return makeParents(c, s.backend.prefix, s.backend.acl) }
		if err = s.do(s.ctx, parents); err == nil {
			err = s.write(s.createBeat)
		}
	}
	if err != nil {
		return s.forbidden(err)
	}
	return nil
}

// keep writes to the session's node, every tenth of the timeout and at once on
// each new connection, until the session is over. A session that has outlived
// its proof is over: the service has ended it, or, if heartbeats were refused,
// the driver's pings would keep it alive, and with it the nodes of holders who
// can rely on nothing any more. It is not ended before the last lease is over,
// since that removes the nodes at once (R3).
func (s *session) keep() error {
	next := time.Now().Add(s.interval())
	for {
		s.mu.Lock()
		changed, fresh := s.changed, s.link != nil && s.link == s.proof.link && len(s.proof.beats) == 0
		expired, refused := clock.Elapsed(s.proof.since, time.Now()) >= s.timeout, s.refused
		s.mu.Unlock()
		if expired {
			return cmp.Or(refused, errUnproven)
		}
		if !fresh {
			timer := time.NewTimer(time.Until(next))
			select {
			case <-s.ctx.Done():
				timer.Stop()
				return s.over()
			case <-changed:
				timer.Stop()
				continue
			case <-timer.C:
			}
		}
		next = time.Now().Add(s.interval())
		err := s.write(s.beat)
		switch {
		case gone(err):
			// Somebody has removed it, and the session is still there.
			err = s.forbidden(s.write(s.createBeat))
		case errors.Is(err, zk.ErrNoAuth):
			err = refusing(err, "this client has no right to write to %s any more: restore its ACL", s.node)
		}
		if err == nil {
			continue
		}
		if isRefusal(err) {
			s.mu.Lock()
			if s.refused == nil {
				const text = "zookeeper: heartbeats are refused, so that leases are not renewed"
				s.backend.opts.Logger.Warn(text, "error", err)
			}
			s.refused = err
			s.change()
			s.mu.Unlock()
		}
		s.pause(s.interval() / 10)
	}
}

// beat writes to the session's node.
func (s *session) beat(c *zk.Conn) error {
	_, err := c.Set(s.node, nil, -1)
	return err
}

func (s *session) createBeat(c *zk.Conn) error {
	_, err := c.Create(s.node, nil, zk.FlagEphemeral, s.backend.acl)
	if errors.Is(err, zk.ErrNodeExists) {
		return nil // an answer was lost: nobody else knows the name
	}
	return err
}

// write makes one write that counts as a heartbeat. A connection that does not
// answer is given up, so that the driver tries another server.
func (s *session) write(f func(*zk.Conn) error) error {
	s.mu.Lock()
	l := s.link
	s.mu.Unlock()
	if l == nil {
		return s.failure(zk.ErrConnectionClosed)
	}
	sent := time.Now()
	patience := s.backend.patience()
	late := time.AfterFunc(patience, func() {
		s.failed(l.server, fmt.Errorf("no answer to a write after %v", patience))
		l.abort()
	})
	defer late.Stop()
	if err := f(s.conn); err != nil { // not through the slots: it waits for no others
		return s.failure(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refused = nil
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

// validity returns what a hold of this session is worth. It waits for a
// heartbeat if the last one is too long ago, until ctx is done; if they are
// refused, it says so. since is when the hold, or its renewal, was asked for.
//
// The engine is told since, and the age of the proof as a drift: what comes out is the end of the timeout as proven, less
// the usual allowance for clocks. since carries both clocks, and the age is the
// greater of the two, so that it comes out so, or earlier, in each of them (R4).
func (s *session) validity(ctx context.Context, since time.Time) (driver.Validity, error) {
	for {
		s.mu.Lock()
		proven, acked, timeout := s.proof.since, s.proof.acked, s.timeout
		refused, changed := s.refused, s.changed
		s.mu.Unlock()
		if s.isOver() {
			return driver.Validity{}, s.over()
		}
		now := time.Now()
		if clock.Elapsed(acked, now) < timeout/4 && clock.Elapsed(proven, now) < 3*timeout/4 {
			drift := timeout/100 + 2*time.Millisecond + max(0, clock.Elapsed(proven, since))
			return driver.Validity{Since: since, TTL: timeout, Drift: drift}, nil
		}
		if refused != nil {
			return driver.Validity{}, refused
		}
		select {
		case <-changed:
		case <-s.ctx.Done():
		case <-ctx.Done():
			return driver.Validity{}, fmt.Errorf("zookeeper: no heartbeat was answered for %v: %w: %w",
				clock.Elapsed(acked, now).Round(time.Millisecond), ctx.Err(), driver.ErrUnavailable)
		}
	}
}
