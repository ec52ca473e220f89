package etcd

import (
	"context"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
)

// What the driver needs of a connection, on the pool. (Its own constructors
// take only a connection of gRPC's, before etcd 3.7.) The embedded interfaces
// are nil: they stand for requests that this package does not make.
type (
	kvClient struct {
		etcdserverpb.KVClient
		p *pool
	}
	leaseClient struct {
		etcdserverpb.LeaseClient
		p *pool
	}
	watchClient struct{ p *pool }
)

func unary[A any](ctx context.Context, p *pool, method string, in any, opts []grpc.CallOption) (*A, error) {
	out := new(A)
	if err := p.invoke(ctx, "/etcdserverpb."+method, in, out, opts); err != nil {
		return nil, err
	}
	return out, nil
}

func (c kvClient) Range(ctx context.Context, in *etcdserverpb.RangeRequest, opts ...grpc.CallOption) (*etcdserverpb.RangeResponse, error) {
	return unary[etcdserverpb.RangeResponse](ctx, c.p, "KV/Range", in, opts)
}

func (c kvClient) Put(ctx context.Context, in *etcdserverpb.PutRequest, opts ...grpc.CallOption) (*etcdserverpb.PutResponse, error) {
	return unary[etcdserverpb.PutResponse](ctx, c.p, "KV/Put", in, opts)
}

func (c kvClient) Txn(ctx context.Context, in *etcdserverpb.TxnRequest, opts ...grpc.CallOption) (*etcdserverpb.TxnResponse, error) {
	return unary[etcdserverpb.TxnResponse](ctx, c.p, "KV/Txn", in, opts)
}

func (c leaseClient) LeaseGrant(ctx context.Context, in *etcdserverpb.LeaseGrantRequest, opts ...grpc.CallOption) (*etcdserverpb.LeaseGrantResponse, error) {
	return unary[etcdserverpb.LeaseGrantResponse](ctx, c.p, "Lease/LeaseGrant", in, opts)
}

func (c leaseClient) LeaseRevoke(ctx context.Context, in *etcdserverpb.LeaseRevokeRequest, opts ...grpc.CallOption) (*etcdserverpb.LeaseRevokeResponse, error) {
	return unary[etcdserverpb.LeaseRevokeResponse](ctx, c.p, "Lease/LeaseRevoke", in, opts)
}

func (c leaseClient) LeaseTimeToLive(ctx context.Context, in *etcdserverpb.LeaseTimeToLiveRequest, opts ...grpc.CallOption) (*etcdserverpb.LeaseTimeToLiveResponse, error) {
	return unary[etcdserverpb.LeaseTimeToLiveResponse](ctx, c.p, "Lease/LeaseTimeToLive", in, opts)
}

// Watch implements [etcdserverpb.WatchClient].
func (c watchClient) Watch(ctx context.Context, opts ...grpc.CallOption) (etcdserverpb.Watch_WatchClient, error) {
	m, _ := c.p.pick(0)
	stream, err := etcdserverpb.NewWatchClient(m.conn).Watch(m.streaming(ctx), append(opts[:len(opts):len(opts)], grpc.WaitForReady(false))...)
	if err != nil && ctx.Err() == nil {
		c.p.avoid(m)
	}
	return stream, err
}
