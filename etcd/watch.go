package etcd

import (
	"context"
	"slices"
	"sync"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
)

// watches makes watches, many on one stream of the driver's.
type watches struct {
	pool *pool

	mu  sync.Mutex
	now clientv3.Watcher // on which the next ones are made
}

// deletion watches key from now on: a watch from the past, which needs no look once it is confirmed, is served
// every 100 ms only. Whoever finds that the watch failed calls failed, and looks.
func (w *watches) deletion(ctx context.Context, key string) (news clientv3.WatchChan, failed func()) {
	w.mu.Lock()
	if w.now == nil {
		w.now = clientv3.NewWatchFromWatchClient(w.pool, w.pool.driver)
	}
	on := w.now
	w.mu.Unlock()
	news = on.Watch(ctx, key, clientv3.WithCreatedNotify(), clientv3.WithFilterPut())
	return news, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.now == on {
			// The next stream has a new token: a stream keeps the one with which it was opened, and once that has
			// expired, etcd refuses each new watch on it (R26). Those that it has go on; it ends with the last.
			w.now = nil
		}
	}
}

// Watch opens a stream. It implements [pb.WatchClient], for the driver.
func (p *pool) Watch(ctx context.Context, opts ...grpc.CallOption) (pb.Watch_WatchClient, error) {
	m, _, _ := p.pick(1)
	opts = append(slices.Clip(opts), grpc.WaitForReady(false))
	stream, err := pb.NewWatchClient(m.conn).Watch(p.streaming(ctx), opts...)
	if err != nil && ctx.Err() == nil {
		p.avoid(m)
	}
	return stream, err
}
