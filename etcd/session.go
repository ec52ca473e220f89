package etcd

import (
	"context"
	"errors"
	"fmt"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/clock"
)

// session is an etcd lease under which the keys of many locks hang: a lease
// for each lock would cost two more proposals for each. It keeps itself alive
// while it is used, and some time longer.
type session struct {
	b       *Backend
	seconds int64 // the TTL asked for

	ready chan struct{}   // closed when it is not opening any more
	ctx   context.Context // ends when no lock of it may be believed any more
	end   context.CancelFunc
	kick  chan struct{} // makes its loop act at once
	ended chan struct{} // closed when its loop has ended
	poll  *poller

	// Set before ready is closed.
	id       int64         // of the lease
	ttl      time.Duration // granted
	key      string        // as long as it is there, the lease is
	revision int64         // at which the key was put
	openErr  error

	// Used by the loop alone.
	on        *member // to which the stream goes
	stream    pb.Lease_LeaseKeepAliveClient
	endStream context.CancelFunc
	misses    int // keep-alives in a row without an answer

	// Guarded by b.mu.
	life   life
	absent bool               // its key is: its lease is gone, or is being revoked
	users  int                // attempts, and holds that are not settled
	idle   time.Time          // since when there are none
	holds  map[*hold]struct{} // granted
	voids  int
	since  time.Time
	moved  chan struct{} // closed when since moves
	behind error         // why the latest keep-alive failed
}

// life is what a session is good for. It only ever moves down this list:
//
//	opening ─► open ─► retired ─► silent ─► gone
//
// and may leave out any step.
type life int

const (
	opening life = iota // its lease is not granted yet
	open                // new locks are taken on it
	retired             // no new ones; those that it has go on
	silent              // over: not heard of for a TTL, or not needed; its keys may still be there
	gone                // the lease is gone for certain, and all that hung on it
)

// The ends of a session, as its users see them.
var (
	errGone   = errors.New("the session has expired")
	errSilent = errors.New("the session could not be kept alive for a TTL")
)

const (
	// idleTime is how long a session that nobody uses is kept.
	idleTime = time.Minute
	// maxVoids is how many void keys a session may leave before another
	// takes its place.
	maxVoids = 64
)

// join returns a session for the TTL, and makes it if there is none. Its user
// calls leave.
func (b *Backend) join(ctx context.Context, seconds int64) (*session, error) {
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return nil, driver.ErrClosed
	}
	s := b.sessions[seconds]
	if s == nil {
		now := time.Now() // R1
		s = &session{
			b: b, seconds: seconds, since: now, idle: now, ready: make(chan struct{}),
			kick: make(chan struct{}, 1), ended: make(chan struct{}), moved: make(chan struct{}),
			holds: map[*hold]struct{}{},
		}
		s.ctx, s.end = context.WithCancel(b.ctx)
		s.poll = newPoller(s)
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

// leave ends a use. b.mu is held.
func (s *session) leave() {
	s.users--
	s.idle = time.Now()
	if s.life >= retired {
		s.hurry()
	}
}

// hurry makes the loop act at once.
func (s *session) hurry() {
	select {
	case s.kick <- struct{}{}:
	default:
	}
}

// become moves the session's life on, and tells the holders if that is its end:
// when become(silent) returns, all have been told.
func (s *session) become(l life) {
	b := s.b
	var tell []*hold
	b.mu.Lock()
	if l >= retired && b.sessions[s.seconds] == s {
		delete(b.sessions, s.seconds)
	}
	if s.life < silent && l >= silent {
		s.end()
		for h := range s.holds { // and none is granted any more
			tell = append(tell, h)
		}
	}
	s.life = max(s.life, l)
	b.mu.Unlock()
	for _, h := range tell {
		h.lost()
	}
}

// expire ends the session whose key is not there any more. Its lease has taken it along, or lives on, if somebody
// has deleted the key: then it is revoked.
func (s *session) expire() {
	s.b.mu.Lock()
	s.absent = true
	s.b.mu.Unlock()
	s.become(silent)
}

// err returns why no lock of the session may be believed any more, or nil. b.mu
// is held.
func (s *session) err() error {
	switch {
	case s.life == gone, s.absent:
		return errGone
	case s.b.closed:
		return driver.ErrClosed
	case s.life == silent && s.behind != nil:
		return fmt.Errorf("%w: %w", errSilent, s.behind) // it may be one that asking again does not mend
	case s.life == silent:
		return errSilent
	}
	return nil
}

// over is err for those who do not hold b.mu.
func (s *session) over() error {
	s.b.mu.Lock()
	defer s.b.mu.Unlock()
	return s.err()
}

func (s *session) isGone() bool {
	s.b.mu.Lock()
	defer s.b.mu.Unlock()
	return s.life == gone
}

func (s *session) addVoid() {
	s.b.mu.Lock()
	s.voids++
	full := s.voids >= maxVoids
	s.b.mu.Unlock()
	if full {
		s.become(retired)
	}
}

// validity returns how far the session is kept alive, and an error if the
// keep-alives since have failed.
func (s *session) validity() (driver.Validity, error) {
	s.b.mu.Lock()
	defer s.b.mu.Unlock()
	v := driver.Validity{Since: s.since, TTL: s.ttl}
	switch err := s.err(); {
	case err != nil:
		return v, err
	case clock.Elapsed(s.since, time.Now()) <= 2*s.every():
		return v, nil
	case s.behind != nil:
		return v, fmt.Errorf("the session is not kept alive: %w", s.behind)
	}
	return v, errSilent
}

// fresh waits until a good part of the TTL is left, so that what is granted is
// not over before it is renewed.
func (s *session) fresh(ctx context.Context) (driver.Validity, error) {
	if v, err := s.validity(); err == nil {
		return v, nil
	}
	limited, cancel := context.WithTimeout(ctx, s.b.opts.Timeout)
	defer cancel()
	for {
		s.b.mu.Lock()
		moved := s.moved
		s.b.mu.Unlock()
		v, err := s.validity()
		if err == nil || s.ctx.Err() != nil {
			return v, err
		}
		s.hurry()
		select {
		case <-moved:
		case <-s.ctx.Done():
		case <-limited.Done():
			if ctx.Err() != nil {
				err = ctx.Err()
			}
			return v, err
		}
	}
}

// run is the life of a session, on a goroutine of its own.
func (s *session) run() {
	defer close(s.ended)
	defer s.end()
	s.openErr = s.open()
	if s.openErr != nil {
		s.become(gone) // there never was a lease
		close(s.ready)
		return
	}
	s.become(open)
	close(s.ready)
	s.b.work.Go(s.watch)
	s.b.work.Go(s.poll.run)
	s.live()
	// Close ends it while locks are held. Their holders know it before the
	// revocation is sent: it lets the next ones in, answered or not.
	s.become(silent)
	s.revoke()
}

// open has etcd grant a lease. It is not the wait of the first caller alone: others may come to wait for the
// same, so it has a context of its own. Etcd chooses the ID: nothing that is late makes a lease anew that is gone
// for certain, and no late key finds it (R7).
func (s *session) open() error {
	b := s.b
	if err := b.pool.agree(s.ctx); err != nil {
		return err
	}
	granted, err := b.pool.grantLease(s.ctx, 0, s.seconds)
	if err != nil {
		return err
	}
	s.id, s.ttl, s.key = granted.ID, time.Duration(granted.TTL)*time.Second, b.keys.session(granted.ID)
	if granted.TTL < s.seconds {
		return fmt.Errorf("it granted a lease of %v instead of %ds", s.ttl, s.seconds)
	}
	isAbsent := clientv3.Compare(clientv3.CreateRevision(s.key), "=", 0)
	put, get := clientv3.OpPut(s.key, "", s.onLease()), clientv3.OpGet(s.key)
	resp, _, err := b.pool.txn(s.ctx, ordinary, []clientv3.Cmp{isAbsent}, []clientv3.Op{put}, []clientv3.Op{get})
	if err != nil {
		return notOfSession(err) // a server that has too much to do
	}
	if s.revision = createRevision(resp.Responses[0]); s.revision == 0 { // else a repeated request (R11)
		s.revision = resp.Header.Revision
	}
	return nil
}

// onLease puts a key on the session's lease.
func (s *session) onLease() clientv3.OpOption { return clientv3.WithLease(clientv3.LeaseID(s.id)) }

// watch ends the session when its lease is revoked or expires, whoever did it: a leader that was stopped for
// longer than a TTL revokes leases that its successor has kept alive (R24). When a watch begins and when it
// fails, it looks, since the key can have gone before.
func (s *session) watch() {
	for failures := 0; ; failures++ {
		told, stop := s.b.watches.deletion(s.key)
		for is := confirmed; is != failed; {
			select {
			case n := <-told:
				is = n.is
			case <-s.ctx.Done():
				stop()
				return
			}
			if is == deleted {
				s.expire()
			} else if s.look(); is == confirmed {
				failures = 0
			}
		}
		_ = clock.Sleep(s.ctx, clock.Jitter(clock.BackOff(failures, firstRewatch, lastRewatch)))
	}
}

// look ends the session, soon, if its key is gone.
func (s *session) look() {
	s.poll.created(s.key, func(revision int64) {
		if revision != s.revision {
			s.expire()
		}
	})
}

// revoke ends the lease at etcd, with all that hangs on it. If that fails, the
// lease ends with its TTL: it goes on trying for so long, since a keep-alive
// that was under way may have made it live for longer, but not when Close waits.
func (s *session) revoke() {
	for began, last := time.Now(), false; !s.isGone(); _ = clock.Sleep(s.b.ctx, s.retry()) {
		closing := s.b.ctx.Err() != nil
		// Its own context: Close has ended that of the backend.
		ctx, cancel := context.WithTimeout(context.Background(), revokeTimeout)
		err := s.b.pool.revokeLease(ctx, s.id)
		cancel()
		switch {
		case err == nil, leaseGone(err):
			s.become(gone)
			return
		case last, time.Since(began) > s.ttl:
			return
		}
		last = closing
	}
}

// revokeTimeout bounds how long Close waits for etcd, which it does twice.
const revokeTimeout = 700 * time.Millisecond
