package etcd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// stream is an open keep-alive stream, on which one request is under way at a
// time. The driver's KeepAliveOnce opens one for each request, and logs
// in for each: that is a bcrypt for the member, of some 60 ms of its processor.
type stream struct {
	etcdserverpb.Lease_LeaseKeepAliveClient
	end context.CancelFunc
}

// idleStreams are those of a session on which nothing is under way.
type idleStreams struct {
	mu   sync.Mutex
	idle []*stream
}

func (st *idleStreams) take() *stream {
	st.mu.Lock()
	defer st.mu.Unlock()
	if len(st.idle) == 0 {
		return nil
	}
	// The latest: one that the others have outlived may be on a member that hangs.
	last := st.idle[len(st.idle)-1]
	st.idle = st.idle[:len(st.idle)-1]
	return last
}

func (st *idleStreams) put(one *stream) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if len(st.idle) == 0 {
		st.idle = append(st.idle, one)
	} else {
		one.end()
	}
}

// renew sends one keep-alive and returns when it was sent, and the term of the
// member that answered.
func (s *session) renew(ctx context.Context) (since time.Time, term uint64, err error) {
	if one := s.streams.take(); one != nil {
		if since, term, err = s.renewOn(ctx, one); err == nil || ctx.Err() != nil || leaseGone(err) {
			return since, term, err
		}
		// It broke since, or its credentials have expired.
	}
	one, err := s.openStream(ctx)
	if err != nil {
		return time.Now(), 0, err
	}
	return s.renewOn(ctx, one)
}

func (s *session) openStream(ctx context.Context) (*stream, error) {
	life, end := context.WithCancel(s.life)
	stop := context.AfterFunc(ctx, end)
	defer stop()
	open, err := etcdserverpb.NewLeaseClient(s.b.client.ActiveConnection()).LeaseKeepAlive(life)
	if err != nil {
		end()
		return nil, rpctypes.Error(err)
	}
	return &stream{open, end}, nil
}

// renewOn keeps the stream if it works, and ends it if not.
func (s *session) renewOn(ctx context.Context, one *stream) (since time.Time, term uint64, err error) {
	stop := context.AfterFunc(ctx, one.end)
	since = time.Now() // R1
	var resp *etcdserverpb.LeaseKeepAliveResponse
	// EOF: the stream is over, and Recv says why.
	if err = one.Send(&etcdserverpb.LeaseKeepAliveRequest{ID: int64(s.id)}); err == nil || errors.Is(err, io.EOF) {
		resp, err = one.Recv()
	}
	if !stop() {
		return since, 0, ctx.Err()
	}
	if err != nil {
		one.end()
		return since, 0, rpctypes.Error(err)
	}
	s.streams.put(one)
	switch granted := time.Duration(resp.TTL) * time.Second; {
	case resp.TTL <= 0:
		err = rpctypes.ErrLeaseNotFound
	case granted < s.ttl:
		err = fmt.Errorf("the lease of %v was renewed for %v", s.ttl, granted)
	}
	return since, resp.Header.GetRaftTerm(), err
}
