package etcd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/golockers/locker/internal/clock"
)

// every is how often a session is kept alive. A lease that the engine renews
// just before a keep-alive has at least 3/4 of a TTL ahead of it, and looks
// again after 1/3.
func (s *session) every() time.Duration { return s.ttl / 4 }

// retry is the pause after a keep-alive that failed.
func (s *session) retry() time.Duration { return max(s.ttl/16, 100*time.Millisecond) }

// live keeps the session alive until it ends or is not needed any more.
func (s *session) live() {
	next := s.since.Add(s.every())
	timer := time.NewTimer(time.Until(next))
	defer timer.Stop()
	defer s.hangUp()
	for {
		kicked := false
		select {
		case <-s.ctx.Done():
			return
		case <-s.kick:
			kicked = true
		case <-timer.C:
		}
		now := time.Now()
		switch {
		case s.unneeded(now):
			return
		case clock.Elapsed(s.since, now) >= s.ttl: // only this goroutine writes since
			return
		case !next.After(now), kicked && clock.Elapsed(s.since, now) > s.every():
			switch err := s.beat(); {
			case err == nil:
				next = s.since.Add(s.every())
			case errors.Is(err, errGone):
				s.expire()
				return
			default:
				next = time.Now().Add(s.retry())
			}
		}
		timer.Reset(min(time.Until(next), time.Until(s.since.Add(s.ttl))))
	}
}

// unneeded reports whether nobody needs the session any more, and retires it then.
func (s *session) unneeded(now time.Time) bool {
	s.b.mu.Lock()
	defer s.b.mu.Unlock()
	if s.users > 0 || s.life < retired && now.Sub(s.idle) < idleTime {
		return false
	}
	if s.b.sessions[s.seconds] == s {
		delete(s.b.sessions, s.seconds)
	}
	s.life = max(s.life, retired)
	return true
}

// errTerm: the lease was renewed by a leader that may have been replaced.
var errTerm = errors.New("the leader changed while the session was kept alive")

// beat keeps the lease alive once, and notes from when that counts.
//
// A leader renews leases without asking anybody, and one that was cut off
// or stopped may not know that it was replaced: its successor counts from its
// election, and has granted leases that the old one has never heard of. So a
// majority is asked after it. If both answers come from one term, the leader
// was the leader when it renewed; and whether the lease is gone is what the
// majority says.
func (s *session) beat() error {
	left := time.Until(s.since.Add(s.ttl))
	limit := min(min(s.ttl/8, time.Second)<<min(s.misses, 8), left)
	ctx, cancel := context.WithTimeout(s.ctx, left)
	defer cancel()
	limited, stop := context.WithTimeout(ctx, limit)
	since, term, err := s.renew(limited)
	late := limited.Err() != nil
	stop()
	if err == nil || leaseGone(err) {
		read, readErr := s.b.pool.read(ctx, urgent, clientv3.OpGet(s.key, clientv3.WithKeysOnly()))
		switch {
		case readErr != nil:
			err = readErr
		case createRevision(read.Responses[0]) != s.revision:
			return errGone
		case err == nil && read.Header.RaftTerm != term:
			err = errTerm
		}
	}
	if s.ctx.Err() != nil {
		return s.ctx.Err()
	}
	if err != nil {
		s.hangUp()
		if !errors.Is(err, errTerm) {
			s.misses++
			s.b.pool.avoid(s.on)
		}
		if late {
			err = fmt.Errorf("%s has not answered within %v", s.on.addr, limit)
		}
	} else {
		s.misses = 0
	}
	s.b.mu.Lock()
	defer s.b.mu.Unlock()
	if s.behind = err; err == nil {
		s.since = since
		close(s.moved)
		s.moved = make(chan struct{})
	}
	return err
}

// hangUp ends the stream of keep-alives.
func (s *session) hangUp() {
	if s.stream != nil {
		s.endStream()
		s.stream = nil
	}
}

// renew sends one keep-alive, to the member that all requests go to, and returns when it was sent, and the
// term of the member that answered. All are sent on one stream, one at a time: the driver's KeepAliveOnce
// opens a stream for each, and logs in for each, which is a bcrypt for the member, of some 60 ms of its
// processor.
func (s *session) renew(ctx context.Context) (since time.Time, term uint64, err error) {
	if m, _, _ := s.b.pool.pick(1); s.stream == nil || s.on != m {
		s.hangUp()
		s.on = m
		if err := m.join(ctx); err != nil {
			return since, 0, rpctypes.Error(err)
		}
		life, end := context.WithCancel(m.on(s.ctx))
		stop := context.AfterFunc(ctx, end)
		opened, err := pb.NewLeaseClient(m.conn).LeaseKeepAlive(withLeader(life), grpc.WaitForReady(false))
		stop()
		if err != nil {
			end()
			return since, 0, rpctypes.Error(err)
		}
		s.stream, s.endStream = opened, end
	}
	stop := context.AfterFunc(ctx, s.endStream)
	defer stop()
	since = time.Now() // R1
	var resp *pb.LeaseKeepAliveResponse
	// EOF: the stream is over, and Recv says why.
	if err = s.stream.Send(&pb.LeaseKeepAliveRequest{ID: s.id}); err == nil || errors.Is(err, io.EOF) {
		resp, err = s.stream.Recv()
	}
	if err != nil {
		return since, 0, rpctypes.Error(err)
	}
	switch granted := time.Duration(resp.TTL) * time.Second; {
	case resp.TTL <= 0:
		err = rpctypes.ErrLeaseNotFound
	case granted < s.ttl:
		err = fmt.Errorf("the lease of %v was renewed for %v", s.ttl, granted)
	}
	return since, resp.Header.GetRaftTerm(), err
}
