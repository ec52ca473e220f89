package etcd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/metadata"

	"github.com/golockers/locker/internal/clock"
)

// line is where a request waits while too many are in flight (R21).
type line int

const (
	ordinary line = iota
	// releases have a line of their own: sixteen thousand attempts are not before them.
	releases
	// readers of whole queues: many of those that are long would take all of a member's processors.
	readers
	urgent // waits in no line
)

// fate is what is known of a request beside its answer, or instead of one.
type fate struct {
	carriedOut bool // it may have been, without an answer that says so
	underWay   bool // it may yet be carried out, once more or at all
}

// txn makes a transaction.
func (p *pool) txn(ctx context.Context, in line, cmps []clientv3.Cmp, then, orElse []clientv3.Op) (
	*clientv3.TxnResponse, fate, error,
) {
	r := &txnRequest{pool: p, line: in}
	kv := clientv3.NewKVFromKVClient(r, &p.driver)
	resp, err := kv.Txn(ctx).If(cmps...).Then(then...).Else(orElse...).Commit()
	return resp, r.fate, err
}

// txnRequest is what the driver's transactions are made on.
type txnRequest struct {
	pb.KVClient
	pool *pool
	line line
	fate fate
}

// Txn implements a part of [pb.KVClient].
func (r *txnRequest) Txn(ctx context.Context, req *pb.TxnRequest, opts ...grpc.CallOption) (
	*pb.TxnResponse, error,
) {
	resp := new(pb.TxnResponse)
	var err error
	if r.fate, err = r.pool.send(ctx, r.line, "KV/Txn", req, resp, opts...); err != nil {
		return nil, err
	}
	return resp, nil
}

// read makes reading requests at one revision.
func (p *pool) read(ctx context.Context, in line, gets ...clientv3.Op) (*clientv3.TxnResponse, error) {
	resp, _, err := p.txn(ctx, in, nil, gets, nil)
	return resp, err
}

// grantLease has etcd grant a lease of that ID, or, if it is 0, of one that etcd chooses: then no copy makes one
// of that ID again, once it is gone, but another one, which nobody uses and which expires by itself.
func (p *pool) grantLease(ctx context.Context, id, seconds int64) (*pb.LeaseGrantResponse, error) {
	resp := new(pb.LeaseGrantResponse)
	f, err := p.send(ctx, ordinary, "Lease/LeaseGrant", &pb.LeaseGrantRequest{ID: id, TTL: seconds}, resp)
	if f.carriedOut && errors.Is(err, rpctypes.ErrLeaseExist) {
		return &pb.LeaseGrantResponse{ID: id, TTL: seconds}, nil // by a copy (R11); etcd grants no less
	}
	return resp, err
}

func (p *pool) revokeLease(ctx context.Context, id int64) error {
	req := &pb.LeaseRevokeRequest{ID: id}
	_, err := p.send(ctx, urgent, "Lease/LeaseRevoke", req, new(pb.LeaseRevokeResponse))
	return err
}

// needsLeader has a member that is cut off say so at once.
var needsLeader = metadata.Pairs(rpctypes.MetadataRequireLeaderKey, rpctypes.MetadataHasLeader)

// withLeader is clientv3.WithRequireLeader, and quick where nothing else is sent along.
func withLeader(ctx context.Context) context.Context {
	if _, others := metadata.FromOutgoingContext(ctx); others {
		return clientv3.WithRequireLeader(ctx)
	}
	return metadata.NewOutgoingContext(ctx, needsLeader)
}

// noAnswerError is a request that no member has answered.
type noAnswerError struct{ reason string }

func (e *noAnswerError) Error() string { return e.reason }

// answer is what all requests get.
type answer interface{ GetHeader() *pb.ResponseHeader }

// invoke makes one request. It returns when ctx is over, whatever the driver does (R8): all that it waits for
// ends with ctx.
func (p *pool) invoke(ctx context.Context, in line, method string, args any, reply answer, opts ...grpc.CallOption) (
	f fate, err error,
) {
	if in != urgent {
		select {
		case p.lines[in] <- struct{}{}:
		case <-ctx.Done():
			return f, ctx.Err()
		}
		defer func() { <-p.lines[in] }()
	}
	parent, limit := clock.Parts(ctx) // a timer of our own is enough
	if err := parent.Err(); err != nil {
		return f, err // nothing was sent, for certain
	}
	if limit == 0 || limit > p.timeout {
		limit = p.timeout
	}
	opts = append(slices.Clip(opts), grpc.WaitForReady(false))
	began := time.Now()
	sent, silent := false, false // it was sent to a member; one has kept it waiting
	var other error              // a member's that belongs to another cluster
	for try := 1; ; try++ {
		m, members, wait := p.pick(try)
		sentAt, left := time.Now(), limit-time.Since(began)
		limited, cancel := context.WithCancel(m.on(untimed{parent}))
		timer := time.AfterFunc(min(wait, left), cancel)
		var unsent *noAnswerError
		err := m.join(limited)
		joined := err == nil
		if joined {
			err = m.conn.Invoke(withLeader(limited), "/etcdserverpb."+method, args, reply, opts...)
		}
		late := limited.Err() != nil
		timer.Stop()
		cancel()
		if err == nil {
			if err = p.answered(m, time.Since(sentAt), reply.GetHeader()); err == nil {
				return f, nil
			}
		}
		was := notYet
		switch {
		case isOtherCluster(err):
			other = err
		case !errors.As(err, &unsent):
			sent = true
			was = outcomeOf(err)
		}
		if joined {
			f.carriedOut = f.carriedOut || was >= answered
			f.underWay = f.underWay || was == unknown
		}
		if was == refused || was == answered {
			return f, rpctypes.Error(err)
		}
		left = limit - time.Since(began)
		if left <= 0 && limit < p.timeout {
			<-ctx.Done() // whose timer is due: the limit is its own
		}
		if ctx.Err() != nil {
			return f, ctx.Err() // no fault of the member's
		}
		silent = silent || late || m.conn.GetState() == connectivity.Connecting
		p.avoid(m)
		// There may be another connection now.
		replaced := m.conn.GetState() == connectivity.Shutdown && p.life.Err() == nil
		switch {
		case left <= 0, !sent && try >= members && !replaced:
			switch {
			case other != nil && !sent && !silent:
				err = other
			case other != nil: // an outage of those that are of the right cluster
				err = &noAnswerError{fmt.Sprintf("no other member has answered, and %v", other)}
			case late && unsent == nil:
				err = &noAnswerError{fmt.Sprintf("no member has answered within %v", p.timeout)}
			}
			return f, rpctypes.Error(err)
		case try%members == 0 && !late:
			// All have refused: they elect a leader, or have too much to do.
			pause := clock.Jitter(clock.BackOff(try/members-1, electionPause, p.timeout))
			if err := clock.Sleep(parent, min(left, pause)); err != nil {
				return f, err
			}
		}
	}
}

// untimed is a context that does not say when it ends. The driver would tell the member, which would set
// timers of its own: some 5 % of a request's time.
type untimed struct{ context.Context }

// Deadline implements [context.Context].
func (untimed) Deadline() (time.Time, bool) { return time.Time{}, false }
