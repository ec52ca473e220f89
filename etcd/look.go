package etcd

import (
	"context"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/golockers/locker/internal/clock"
)

// looks asks etcd whether keys are there, many in one request: ten thousand
// leases that are renewed, or ten thousand waiters, cost a few requests per
// second. A key is missing only if somebody has deleted it by hand, or if a
// watch has not told.
type looks struct {
	s    *session
	kick chan struct{}

	mu    sync.Mutex
	asked map[string][]func(created int64) // by key: who is to be told once
	rare  chan struct{}                    // closed when it is time for waiters to ask
}

const (
	looksAtOnce = 100 // etcd takes 128 operations in a transaction
	// lookPause is the least between two looks, so that many share one.
	lookPause = 50 * time.Millisecond
	// waitersLook is the least time after which waiters are looked at again.
	waitersLook = 20 * time.Second
)

func newLooks(s *session) *looks {
	return &looks{s: s, kick: make(chan struct{}, 1), asked: map[string][]func(int64){}, rare: make(chan struct{})}
}

// ask has fn told the revision at which key was put, soon; 0 if it is not there.
// Names are used again: a key that was put later is another one.
func (ls *looks) ask(key string, fn func(created int64)) {
	ls.mu.Lock()
	ls.asked[key] = append(ls.asked[key], fn)
	ls.mu.Unlock()
	select {
	case ls.kick <- struct{}{}:
	default:
	}
}

// round returns a channel that is closed when those who wait ask again, all at one
// time, so that they share requests.
func (ls *looks) round() <-chan struct{} {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return ls.rare
}

func (ls *looks) nextRound() {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	close(ls.rare)
	ls.rare = make(chan struct{})
}

// run looks until the session is over.
func (ls *looks) run() {
	ctx := ls.s.ctx
	rounds := time.NewTicker(clock.Jitter(max(ls.s.ttl, waitersLook)))
	defer rounds.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
			return
		case <-rounds.C:
			ls.nextRound()
			continue
		case <-ls.kick:
		}
		ls.mu.Lock()
		asked := ls.asked
		ls.asked = map[string][]func(int64){}
		ls.mu.Unlock()
		ls.look(ctx, asked)
		_ = clock.Sleep(ctx, lookPause)
	}
}

// look asks as many requests as it takes. One that fails is not made again:
// whoever needs to know asks again.
func (ls *looks) look(ctx context.Context, asked map[string][]func(int64)) {
	var keys []string
	var ops []clientv3.Op
	flush := func() {
		limited, cancel := context.WithTimeout(ctx, ls.s.b.opts.Timeout)
		defer cancel()
		resp, err := ls.s.b.kv.Txn(&call{Context: limited, urgent: true}).Then(ops...).Commit()
		for i, key := range keys {
			if err != nil {
				break
			}
			created := int64(0)
			for _, kv := range resp.Responses[i].GetResponseRange().Kvs {
				created = kv.CreateRevision
			}
			for _, fn := range asked[key] {
				fn(created)
			}
		}
		keys, ops = nil, nil
	}
	for key := range asked {
		keys, ops = append(keys, key), append(ops, clientv3.OpGet(key, clientv3.WithKeysOnly()))
		if len(keys) == looksAtOnce {
			flush()
		}
	}
	if len(keys) > 0 {
		flush()
	}
}
