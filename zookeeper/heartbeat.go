package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/golockers/locker"
)

// run keeps the session, until it is over and all its goroutines have ended.
func (s *session) run() {
	err := s.prepare()
	if err == nil {
		err = s.keep()
	}
	s.end(err) // if it is not over yet
	s.closeDriver()
	s.goroutines.Wait()
	s.backend.ended(s)
}

// keep writes to the session's node, every tenth of the timeout and at once on
// each new connection, until the session is over. It returns an error if the
// service refuses the writes until the session has outlived its proof.
func (s *session) keep() error {
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
				return s.over()
			case <-changed:
				timer.Stop()
				continue
			case <-timer.C:
			}
		}
		if err := s.reconnected(s.ctx); err != nil {
			return err
		}
		next = time.Now().Add(s.interval())
		err := s.write(s.beat)
		switch {
		case errors.Is(err, zk.ErrNoNode):
			// Somebody has removed it, and the session is still there.
			err = s.forbidden(s.write(s.createBeat))
		case errors.Is(err, zk.ErrNoAuth):
			err = s.lacks("write", err)
		}
		if err == nil || s.ctx.Err() != nil {
			continue
		}
		var r *refusal
		if errors.As(err, &r) && s.outlived(r) {
			return r
		}
		s.backend.opts.Logger.Debug("zookeeper: heartbeat", "error", err)
		s.pause(s.interval() / 10)
	}
}

// beat writes to the session's node.
func (s *session) beat(c *zk.Conn) error {
	_, err := c.Set(s.node, nil, -1)
	return err
}

// outlived notes that a heartbeat was refused, and reports whether the session
// has outlived its proof. The driver's pings keep it alive at the service, and
// with it the nodes of holders who can rely on nothing any more: it is to end.
// That removes the nodes at once, so it is not before the last lease is over
// (R3); until then, the right may be given back.
func (s *session) outlived(r *refusal) bool {
	s.mu.Lock()
	first := s.refused == nil
	s.refused = r
	proven, timeout := s.proof.since, s.timeout
	s.change()
	s.mu.Unlock()
	if first {
		s.backend.opts.Logger.Warn("zookeeper: heartbeats are refused, so that leases are not renewed", "error", r)
	}
	return elapsed(proven, time.Now()) >= timeout
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

func (s *session) pause(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-s.dead:
	}
}

// validity returns what a hold of this session is worth. It waits for a
// heartbeat if the last one is too long ago, until ctx is done; if they are
// refused, it says so. since is when
// the hold, or its renewal, was asked for.
//
// The engine is told since, from which it counts MaxHold, and the age of the
// proof as a drift: what comes out is the end of the timeout as proven, less
// the usual allowance for clocks. since carries both clocks, and the age is the
// greater of the two, so that it comes out so, or earlier, in each of them (R4).
func (s *session) validity(ctx context.Context, since time.Time) (locker.Validity, error) {
	for {
		s.mu.Lock()
		proven, acked, timeout := s.proof.since, s.proof.acked, s.timeout
		refused, changed := s.refused, s.changed
		s.mu.Unlock()
		if s.isDead() {
			return locker.Validity{}, s.over()
		}
		now := time.Now()
		if elapsed(acked, now) < timeout/4 && elapsed(proven, now) < 3*timeout/4 {
			drift := timeout/100 + 2*time.Millisecond
			return locker.Validity{Since: since, TTL: timeout, Drift: drift + max(0, elapsed(proven, since))}, nil
		}
		if refused != nil {
			return locker.Validity{}, refused
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
