// Package session is a client's session with a lock service: many holds live on it, and end with it. It does no I/O.
//
// A session is proven to be alive as of a moment from before a request was sent that the service has counted (R1), and
// is believed for its TTL from then on. The clock alone ends it (R2), in monotonic and in wall time (R4).
package session

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/clock"
)

// Why a session is over, unless [Session.End] was given another cause.
var (
	// ErrGone: the service has ended it.
	ErrGone = errors.New("the session has expired")
	// ErrSilent: it was not proven for a TTL. The service may still have it.
	ErrSilent = errors.New("the session could not be kept alive for a TTL")
	// ErrUnused: nobody has used it for a while.
	ErrUnused = errors.New("the session was not used any more")
)

// life is what a session is good for:
//
//	opening ──> open ──> over ──> ended
//	   └──────────────────^
type life int

const (
	opening life = iota // the service has not granted it yet
	open                // holds are granted on it
	over                // no hold may be trusted any more; the service may still have it
	ended               // the service does not have it any more, nor anything that was on it
)

// Terms are how a session is kept. They may depend on its TTL.
type Terms struct {
	Every time.Duration // from the sending of a beat that succeeded to the next
	Retry time.Duration // the pause after a beat that failed
	// Nothing is granted or renewed when no beat has been answered for Silence, or when less than Least of the
	// TTL is left: a lease would end before the engine could renew it.
	Silence, Least time.Duration
	// Refused, which has to be set, reports whether a beat failed with an error that asking again does not help.
	// Nobody waits for the next one then.
	Refused func(error) bool
}

// Session is one session. Make it with [New]. Its methods do not block, unless they say so.
type Session struct {
	ctx    context.Context // ends when it is over and every holder has been notified
	cancel context.CancelCauseFunc
	opened chan struct{} // closed when it is no longer opening
	gone   chan struct{} // closed when it is ended
	hurry  chan struct{} // holds an element if the next beat is to be sent at once

	mu       sync.Mutex
	life     life
	cause    error           // why it is over
	proof    driver.Validity // Since and TTL: as far as it is proven
	terms    Terms
	answered time.Time // when a beat was answered last
	behind   error     // why the latest beat failed; nil: it has not
	beaten   chan struct{}
	deadline *time.Timer // ends the session, unless it was proven meanwhile
	users    int
	retired  bool
	idle     time.Duration
	unused   *time.Timer // ends the session, unless it has users
	holds    map[*func()]struct{}
}

// New returns a session that is opening. It is ended if nobody has used it for idle.
func New(idle time.Duration) *Session {
	s := &Session{
		opened: make(chan struct{}), gone: make(chan struct{}), hurry: make(chan struct{}, 1),
		beaten: make(chan struct{}), idle: idle, holds: map[*func()]struct{}{},
	}
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unused = time.AfterFunc(idle, s.endUnused)
	return s
}

// Context ends when the session is over and every holder has been notified: what is bound to it, such as the request
// that ends the session at the service, comes after that. Its cause is [Session.Err].
func (s *Session) Context() context.Context { return s.ctx }

// Open notes that the service has granted the session for ttl, counted from since; again, if the service has changed
// the TTL.
func (s *Session) Open(since time.Time, ttl time.Duration, terms Terms) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.life >= over {
		return
	}
	if s.life == opening {
		s.life, s.answered = open, time.Now()
		close(s.opened)
		s.deadline = time.AfterFunc(ttl, s.expire)
	}
	s.proof.TTL, s.terms = ttl, terms
	s.prove(since)
	s.deadline.Reset(s.left(time.Now()))
}

// prove notes from when the TTL counts at the least. s.mu is held.
func (s *Session) prove(since time.Time) {
	if since.After(s.proof.Since) {
		s.proof.Since = since
	}
}

// left is how much of the TTL is left. s.mu is held.
func (s *Session) left(now time.Time) time.Duration {
	return s.proof.TTL - clock.Elapsed(s.proof.Since, now)
}

// Ready waits until the session is open, and returns why it is over, or ctx is.
func (s *Session) Ready(ctx context.Context) error {
	select {
	case <-s.opened:
		return s.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Join counts a user, who calls Leave. It returns false if the session takes no more.
func (s *Session) Join() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.life >= over || s.retired {
		return false
	}
	s.users++
	return true
}

// Leave ends a use.
func (s *Session) Leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.users--
	s.rest()
}

// Retire has the session take no more users, and end after the last one.
func (s *Session) Retire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.retired = true
	s.rest()
}

// rest begins the time after which a session that nobody uses ends. s.mu is held.
func (s *Session) rest() {
	switch {
	case s.users > 0 || s.life >= over:
	case s.retired:
		s.unused.Reset(0) // not here: the caller may hold locks that End's callees take
	default:
		s.unused.Reset(s.idle)
	}
}

func (s *Session) endUnused() {
	s.mu.Lock()
	if s.users > 0 {
		s.mu.Unlock()
		return
	}
	s.end(ErrUnused)
}

// expire ends the session if it has not been proven in time.
func (s *Session) expire() {
	s.mu.Lock()
	if left := s.left(time.Now()); left > 0 && s.life < over {
		s.deadline.Reset(left)
		s.mu.Unlock()
		return
	}
	s.end(ErrSilent)
}

// Grant notes a hold: lost is called when the session is over. It does not block, and ends no session. forget ends that.
func (s *Session) Grant(lost func()) (forget func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.err(); err != nil {
		return nil, err
	}
	s.holds[&lost] = struct{}{}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.holds, &lost)
	}, nil
}

// End makes the session over. It returns when every holder has been notified, also if another call has ended it: what
// lets the next holder in comes after that. The first cause counts.
func (s *Session) End(cause error) {
	s.mu.Lock()
	s.end(cause)
}

// end is End for those who have locked s.mu, which it unlocks.
func (s *Session) end(cause error) {
	if s.life >= over {
		s.mu.Unlock()
		<-s.ctx.Done()
		return
	}
	if s.life == opening {
		close(s.opened)
	} else {
		s.deadline.Stop()
	}
	s.unused.Stop()
	s.life, s.cause = over, cause
	holds := s.holds
	s.holds = nil
	s.mu.Unlock()
	for lost := range holds {
		(*lost)()
	}
	s.cancel(cause)
}

// Ended notes that the service does not have the session any more, nor anything that was on it. It returns when
// every holder has been notified.
func (s *Session) Ended() {
	s.End(ErrGone)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.life < ended {
		s.life = ended
		close(s.gone)
	}
}

// Gone is closed when the session has Ended.
func (s *Session) Gone() <-chan struct{} { return s.gone }

// IsGone reports whether it has Ended.
func (s *Session) IsGone() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.life == ended
}

// Err returns why no hold of the session may be trusted any more, or nil.
func (s *Session) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err()
}

func (s *Session) err() error {
	if s.life >= over && errors.Is(s.cause, ErrSilent) && s.behind != nil {
		return fmt.Errorf("%w: %w", s.cause, s.behind) // it may be one that asking again does not help
	}
	return s.cause
}

// Validity returns how far the session is proven (Since and TTL), and an error if nothing is granted or renewed on it.
func (s *Session) Validity() (driver.Validity, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.validity()
}

func (s *Session) validity() (driver.Validity, error) {
	now := time.Now()
	switch {
	case s.life >= over:
		return s.proof, s.err()
	case s.life == open && clock.Elapsed(s.answered, now) <= s.terms.Silence && s.left(now) >= s.terms.Least:
		return s.proof, nil
	case s.behind != nil:
		return s.proof, fmt.Errorf("the session is not kept alive: %w", s.behind)
	}
	return s.proof, errBehind
}

var errBehind = errors.New("the session is not kept alive: no answer has come yet")

// Fresh is Validity, but waits for the beat that it takes, until ctx is done, or the service refuses beats.
func (s *Session) Fresh(ctx context.Context) (driver.Validity, error) {
	for {
		s.mu.Lock()
		v, err := s.validity()
		beaten, final := s.beaten, s.life >= over || s.behind != nil && s.terms.Refused(s.behind)
		s.mu.Unlock()
		if err == nil || final {
			return v, err
		}
		select {
		case <-beaten:
		case <-s.ctx.Done():
		case <-ctx.Done():
			return v, fmt.Errorf("%w: %w", ctx.Err(), err)
		}
	}
}

// hurryAfter is the shortest time between a beat that failed and the one that Hurry sends, so that many calls cause no
// storm.
const hurryAfter = 100 * time.Millisecond

// Hurry has the next beat sent at once, since there is news: the service can be reached again.
func (s *Session) Hurry() {
	select {
	case s.hurry <- struct{}{}:
	default:
	}
}

// Keep has an open session proven until it is over, and returns when every holder has been notified. beat asks the
// service once. It returns the moment from which that counts, which need not be later than the one before. An error
// that matches ErrGone says that the service has ended the session. A beat should end with Context, but the session
// ends in time even if it does not.
func (s *Session) Keep(beat func() (since time.Time, err error)) {
	s.mu.Lock()
	next, retry := s.proof.Since.Add(s.terms.Every), s.terms.Retry
	s.mu.Unlock()
	var sent time.Time
	failed := false
	timer := time.NewTimer(time.Until(next))
	defer timer.Stop()
	for {
		select {
		case <-s.ctx.Done():
		case <-s.hurry:
			soon := sent.Add(retry)
			if failed {
				soon = sent.Add(min(retry, hurryAfter))
			}
			if soon.Before(next) && (failed || !soon.After(time.Now())) {
				next = soon
			}
		case <-timer.C:
		}
		s.expire() // the wall clock may have been stepped
		if s.ctx.Err() != nil {
			return
		}
		if now := time.Now(); !next.After(now) {
			sent = now
			since, err := beat()
			if errors.Is(err, ErrGone) {
				s.End(ErrGone)
			}
			next, retry = s.note(sent, since, err)
			failed = err != nil
		}
		timer.Reset(time.Until(next))
	}
}

// note notes what has become of a beat, and returns when to send the next one.
func (s *Session) note(sent, since time.Time, err error) (next time.Time, retry time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.beaten)
	s.beaten = make(chan struct{})
	now := time.Now()
	if s.behind = err; err != nil {
		return now.Add(s.terms.Retry), s.terms.Retry
	}
	s.answered = now
	s.prove(since)
	return sent.Add(s.terms.Every), s.terms.Retry
}
