package etcd

import (
	"context"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/golockers/locker/internal/clock"
)

// poller asks etcd whether keys are there, many in one request: ten thousand leases that are renewed, or ten
// thousand waiters, cost a few requests per second. A key is missing only if somebody has deleted it by hand,
// or if a watch has not told.
type poller struct {
	s    *session
	kick chan struct{}

	mu    sync.Mutex
	asked map[string][]func(created int64) // by key: who is to be told once
}

const (
	keysAtOnce = 100 // etcd takes 128 operations in a transaction
	// pollPause is the least between two requests, so that many share one.
	pollPause = 50 * time.Millisecond
	// waitersPoll is the least time after which waiters ask again.
	waitersPoll = 20 * time.Second
)

func newPoller(s *session) *poller {
	return &poller{s: s, kick: make(chan struct{}, 1), asked: map[string][]func(int64){}}
}

// created has fn told the revision at which key was put, soon; 0 if it is not there. Names are used again: a
// key that was put later is another one.
func (p *poller) created(key string, fn func(revision int64)) {
	p.mu.Lock()
	p.asked[key] = append(p.asked[key], fn)
	p.mu.Unlock()
	select {
	case p.kick <- struct{}{}:
	default:
	}
}

// run asks until the session is over.
func (p *poller) run() {
	ctx := p.s.ctx
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.kick:
		}
		p.mu.Lock()
		asked := p.asked
		p.asked = map[string][]func(int64){}
		p.mu.Unlock()
		p.ask(ctx, asked)
		_ = clock.Sleep(ctx, pollPause)
	}
}

// ask makes as many requests as it takes. One that fails is not made again: who needs to know asks again.
func (p *poller) ask(ctx context.Context, asked map[string][]func(int64)) {
	var keys []string
	var gets []clientv3.Op
	flush := func() {
		limited, cancel := context.WithTimeout(ctx, p.s.b.opts.Timeout)
		defer cancel()
		if resp, err := p.s.b.pool.read(limited, urgent, gets...); err == nil {
			for i, key := range keys {
				for _, fn := range asked[key] {
					fn(createRevision(resp.Responses[i]))
				}
			}
		}
		keys, gets = nil, nil
	}
	for key := range asked {
		keys, gets = append(keys, key), append(gets, clientv3.OpGet(key, clientv3.WithKeysOnly()))
		if len(keys) == keysAtOnce {
			flush()
		}
	}
	if len(keys) > 0 {
		flush()
	}
}

// createRevision returns at which revision the key was put that a get was for; 0 if it is not there.
func createRevision(get *pb.ResponseOp) (revision int64) {
	for _, kv := range get.GetResponseRange().GetKvs() {
		revision = kv.CreateRevision
	}
	return revision
}
