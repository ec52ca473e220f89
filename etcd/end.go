package etcd

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/golockers/locker"
)

// end makes every lock of the session void, as far as this client goes, and
// tells their holders. The cause is errGone, or, from the session's loop alone,
// errSilent: when that returns, all have been told, or the lease is gone.
func (s *session) end(cause error) {
	b := s.b
	var tell []*hold
	b.mu.Lock()
	s.retire()
	if !s.over {
		s.over = true
		s.behind = cause
		close(s.ended)
		tell = slices.Collect(maps.Keys(s.holds)) // and none is granted any more
	}
	if cause == errGone { //nolint:errorlint // one of two of our own
		s.gone = true
	}
	b.mu.Unlock()
	for _, h := range tell {
		if h.lost != nil {
			h.lost()
		}
	}
}

// finish strikes off what the session still has to do with: an outage must not
// cost memory for good. What etcd may have of it goes with the lease. Its
// name is another's only if the lease is gone for certain: a key that is left, or
// comes late, must not stand where the next session puts its own.
func (s *session) finish() {
	b := s.b
	b.mu.Lock()
	defer b.mu.Unlock()
	s.through = true
	for h := range s.holds {
		h.strike()
	}
	for h := range s.debts {
		h.strike()
	}
	if s.gone || s.openErr != nil { // or there never was a lease
		b.names = append(b.names, s.name)
	}
}

// state returns why the session is over, or nil.
func (s *session) state() error {
	s.b.mu.Lock()
	defer s.b.mu.Unlock()
	return s.ending()
}

// ending is state with b.mu held.
func (s *session) ending() error {
	switch {
	case s.gone:
		return errGone
	case s.over && s.b.closed:
		return locker.ErrClosed
	case s.over:
		return errSilent
	}
	return nil
}

// revoke ends the lease at etcd, with all that hangs on it. If that fails, the
// lease ends with its TTL: it goes on trying for so long, since a keep-alive
// that was under way may have made it live for longer, but not when Close waits.
func (s *session) revoke() {
	b := s.b
	b.mu.Lock()
	gone := s.gone
	b.mu.Unlock()
	began, last := time.Now(), false
	for !gone {
		closing := b.ctx.Err() != nil
		// Its own context: Close has ended that of the backend.
		ctx, cancel := context.WithTimeout(context.Background(), revokeTimeout)
		err := b.connected(ctx)
		if err == nil {
			_, err = b.client.Revoke(ctx, s.id)
		}
		cancel()
		if err == nil || leaseGone(err) {
			s.end(errGone)
			return
		}
		if last || time.Since(began) > s.ttl {
			break
		}
		// One that went to a member that hangs is followed by one to another.
		last = closing
		select {
		case <-b.ctx.Done():
		case <-time.After(s.retry()):
		}
	}
}

// revokeTimeout bounds how long Close waits for etcd, which it does twice.
const revokeTimeout = time.Second
