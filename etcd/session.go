package etcd

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/golockers/locker"
)

// session is an etcd lease under which the keys of many locks hang: a lease
// for each lock would cost two more proposals for each. It keeps itself alive
// while it is used, and some time longer.
type session struct {
	b       *Backend
	seconds int64  // the TTL asked for
	name    string // what its keys are known by: no other session has it meanwhile

	// Set before ready is closed.
	id      clientv3.LeaseID
	ttl     time.Duration // granted
	openErr error
	ready   chan struct{}

	life    context.Context // of its goroutines
	streams idleStreams
	kick    chan struct{} // asks for a keep-alive now
	ended   chan struct{} // closed when no lock of it may be believed any more

	// Guarded by b.mu.
	users   int                // attempts, holds and debts
	idle    time.Time          // since when there are none
	holds   map[*hold]struct{} // granted
	debts   map[*hold]struct{} // to be removed
	voids   int
	retired bool // no new locks are taken on it
	over    bool // ended is closed
	gone    bool // the lease is gone for certain
	through bool // its loop has ended: nobody removes anything any more
	since   time.Time
	moved   chan struct{} // closed when since moves
	behind  error         // why the latest keep-alive failed
	paying  bool
}

const (
	// idleTime is how long a session that nobody uses is kept.
	idleTime = time.Minute
	// maxVoids is how many void keys a session may leave before another
	// takes its place.
	maxVoids = 64
)

// join returns a session for the TTL, and makes it if there is none. Its user
// calls leave, in the end, through hold.strike.
func (b *Backend) join(ctx context.Context, seconds int64) (*session, error) {
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return nil, locker.ErrClosed
	}
	s := b.sessions[seconds]
	if s == nil {
		s = &session{
			b: b, seconds: seconds, name: b.takeName(),
			ready: make(chan struct{}), kick: make(chan struct{}, 1),
			ended: make(chan struct{}), moved: make(chan struct{}),
			holds: map[*hold]struct{}{}, debts: map[*hold]struct{}{},
		}
		b.sessions[seconds] = s
		b.work.Go(s.run)
	}
	s.users++
	b.mu.Unlock()
	var err error
	select {
	case <-s.ready:
		err = s.openErr
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		b.mu.Lock()
		s.leave()
		b.mu.Unlock()
		return nil, err
	}
	return s, nil
}

// takeName returns a name for a session. Those of sessions whose leases are gone
// are used again: etcd remembers the keys that were deleted. b.mu is held.
func (b *Backend) takeName() string {
	if last := len(b.names) - 1; last >= 0 {
		name := b.names[last]
		b.names = b.names[:last]
		return name
	}
	var name [10]byte
	_, _ = rand.Read(name[:]) // never fails
	return hex.EncodeToString(name[:])
}

// leave ends a use. b.mu is held.
func (s *session) leave() {
	s.users--
	s.idle = time.Now()
	if s.retired {
		s.hurry()
	}
}

// hurry makes the loop look at once.
func (s *session) hurry() {
	select {
	case s.kick <- struct{}{}:
	default:
	}
}

// retire makes new locks be taken on another session. b.mu is held.
func (s *session) retire() {
	s.retired = true
	if s.b.sessions[s.seconds] == s {
		delete(s.b.sessions, s.seconds)
	}
}

func (s *session) addVoid() {
	s.b.mu.Lock()
	defer s.b.mu.Unlock()
	if s.voids++; s.voids >= maxVoids {
		s.retire()
	}
}

// every is how often a session is kept alive. A lease that the engine renews
// just before a keep-alive has at least 3/4 of a TTL ahead of it, and looks
// again after 1/3.
func (s *session) every() time.Duration { return s.ttl / 4 }

// retry is the pause between keep-alives while there is no answer.
func (s *session) retry() time.Duration { return max(s.ttl/16, minRetry) }

// validity returns how far the session is kept alive. It also returns an error
// if the keep-alives since have failed.
func (s *session) validity() (locker.Validity, error) {
	s.b.mu.Lock()
	defer s.b.mu.Unlock()
	v := locker.Validity{Since: s.since, TTL: s.ttl}
	if s.over || age(s.since) > 2*s.every() {
		if s.behind == nil {
			return v, errSilent
		}
		return v, s.behind
	}
	return v, nil
}

// fresh waits until a good part of the TTL is left, so that what is granted is
// not over before it is renewed.
func (s *session) fresh(ctx context.Context) (locker.Validity, error) {
	limited, cancel := context.WithTimeout(ctx, s.b.opts.Timeout)
	defer cancel()
	for {
		s.b.mu.Lock()
		moved, behind := s.moved, s.behind
		s.b.mu.Unlock()
		v, err := s.validity()
		if err == nil {
			return v, nil
		}
		s.hurry()
		select {
		case <-moved:
		case <-s.ended:
			return v, s.state()
		case <-limited.Done():
			if ctx.Err() != nil {
				return v, ctx.Err()
			}
			return v, fmt.Errorf("the session is not kept alive: %w", cmpErr(behind, errSilent))
		}
	}
}

func cmpErr(err, other error) error {
	if err != nil {
		return err
	}
	return other
}

// age is how long ago t was, by the clock that says more: the monotonic one
// stands still while a machine sleeps (R4).
func age(t time.Time) time.Duration {
	now := time.Now()
	return max(now.Sub(t), now.Round(0).Sub(t.Round(0)))
}
