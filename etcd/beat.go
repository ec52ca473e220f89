package etcd

import (
	"context"
	"errors"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/connectivity"
)

// run is the life of a session, on a goroutine of its own.
func (s *session) run() {
	defer s.finish()
	if !s.open() {
		return
	}
	ctx, cancel := context.WithCancel(s.b.ctx)
	s.life = ctx
	s.live(ctx)
	cancel() // and with it all streams
	// Close ends live while locks are held. Their holders know it before the
	// revocation is sent: it lets the next ones in, answered or not.
	s.end(errSilent)
	s.revoke()
}

// open has etcd grant a lease. It is not the wait of the first caller alone:
// others may come to wait for the same, so it has a context of its own.
func (s *session) open() bool {
	b := s.b
	type granted struct {
		*clientv3.LeaseGrantResponse
		since time.Time
	}
	g, _, err := repeated(b.ctx, b, func(ctx context.Context) (granted, error) {
		since := time.Now() // R1
		resp, err := b.client.Grant(ctx, s.seconds)
		return granted{resp, since}, err
	})
	if err == nil {
		s.id, s.ttl = g.ID, time.Duration(g.TTL)*time.Second
	}
	if err == nil && s.ttl < time.Duration(s.seconds)*time.Second {
		err = fmt.Errorf("it granted a lease of %v instead of %ds", s.ttl, s.seconds)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	s.openErr, s.since, s.idle = err, g.since, time.Now()
	if err != nil {
		s.retire()
	}
	close(s.ready)
	return err == nil
}

// beatsAtOnce is how many keep-alives may be under way: a member that does not
// answer must not hold up the one that goes to the next.
const beatsAtOnce = 3

// beat is what came of a keep-alive.
type beat struct {
	since time.Time
	err   error
}

// live keeps the session alive until it ends, is not needed any more, or ctx
// is done.
func (s *session) live(ctx context.Context) {
	b := s.b
	results := make(chan beat, beatsAtOnce)
	underWay := 0
	next := s.since.Add(s.every())
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.ended: // a request found out that the lease is gone
			return
		case <-s.kick:
			b.mu.Lock()
			if age(s.since) > s.every() {
				next = time.Now()
			}
			b.mu.Unlock()
		case r := <-results:
			underWay--
			switch {
			case r.err == nil:
				next = later(next, s.beaten(r.since).Add(s.every()))
				s.pay(ctx)
			case leaseGone(r.err):
				s.end(errGone)
				return
			default:
				s.missed(r.err)
				if errors.Is(r.err, errTerm) {
					next = time.Now().Add(minRetry)
				}
			}
		case <-timer.C:
		}
		now := time.Now()
		if s.idleFor(now) {
			return
		}
		if age(s.since) >= s.ttl { // only this goroutine writes since
			s.end(errSilent)
			return
		}
		if !next.After(now) && underWay < beatsAtOnce {
			underWay++
			next = now.Add(s.retry())
			b.work.Go(func() {
				limited, cancel := context.WithTimeout(ctx, max(s.ttl/3, 4*minRetry))
				defer cancel()
				since, err := s.beat(limited)
				results <- beat{since, err}
			})
		}
		wait := next.Sub(now)
		if underWay == beatsAtOnce {
			wait = s.retry()
		}
		timer.Reset(min(max(wait, 0), s.since.Add(s.ttl).Sub(now)))
	}
}

const minRetry = 100 * time.Millisecond

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// errTerm: the lease was renewed by a leader that may have been replaced.
var errTerm = errors.New("the leader changed while the session was kept alive")

// beat keeps the lease alive once, and returns from when that counts.
//
// A leader renews leases without asking anybody, and one that was cut off
// or stopped may not know that it was replaced: its successor counts from its
// election. So a majority is asked after it, and if both answers come
// from one term, the leader was the leader when it renewed.
func (s *session) beat(ctx context.Context) (time.Time, error) {
	client := s.b.client
	if conn := client.ActiveConnection(); conn != nil && conn.GetState() == connectivity.TransientFailure {
		conn.ResetConnectBackoff() // the driver's pauses grow to two minutes
	}
	since, term, err := s.renew(ctx)
	if err != nil {
		return since, err
	}
	read, err := client.Get(ctx, s.b.keys.pulse(), clientv3.WithCountOnly())
	if err == nil && read.Header.RaftTerm != term {
		err = errTerm
	}
	return since, err
}

// beaten notes a keep-alive that succeeded, and returns the latest.
func (s *session) beaten(since time.Time) time.Time {
	s.b.mu.Lock()
	defer s.b.mu.Unlock()
	if since.After(s.since) {
		s.since = since
		close(s.moved)
		s.moved = make(chan struct{})
	}
	s.behind = nil
	return s.since
}

func (s *session) missed(err error) {
	s.b.mu.Lock()
	defer s.b.mu.Unlock()
	s.behind = err
}

// idleFor reports whether nobody needs the session any more, and retires it then.
func (s *session) idleFor(now time.Time) bool {
	s.b.mu.Lock()
	defer s.b.mu.Unlock()
	// A revocation pays all debts.
	if needed := s.users > len(s.debts); needed || !s.retired && (s.users > 0 || now.Sub(s.idle) < idleTime) {
		return false
	}
	s.retire()
	return true
}

// pay removes, in the background, what releases and take-backs have not. A debt
// that stands although the session could be kept alive for a TTL makes no new
// lock be taken on it: it is revoked then when the last hold is gone.
func (s *session) pay(ctx context.Context) {
	b := s.b
	b.mu.Lock()
	defer b.mu.Unlock()
	var debts []*hold
	for h := range s.debts {
		debts = append(debts, h)
		if age(h.since) > s.ttl {
			s.retire()
		}
	}
	if s.paying || len(debts) == 0 || b.closed {
		return
	}
	s.paying = true
	b.work.Go(func() {
		for _, h := range debts {
			if ctx.Err() != nil {
				break
			}
			_, _ = h.remove(ctx)
		}
		b.mu.Lock()
		s.paying = false
		b.mu.Unlock()
	})
}
