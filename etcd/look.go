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
	kept  map[*watched]struct{}            // looked at from time to time
}

// watched is what a waiter relies on: its own key, and the watch of the key
// before.
type watched struct {
	keys    [2]string
	created [2]int64
	gone    chan struct{} // takes one without blocking
}

const (
	looksAtOnce = 100 // etcd takes 128 operations in a transaction
	// lookPause is the least between two looks, so that many share one.
	lookPause = 50 * time.Millisecond
	// waitersLook is the least time after which waiters are looked at again.
	waitersLook = 20 * time.Second
)

func newLooks(s *session) *looks {
	return &looks{s: s, kick: make(chan struct{}, 1), asked: map[string][]func(int64){}, kept: map[*watched]struct{}{}}
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

// keep looks at w from time to time, until forget.
func (ls *looks) keep(w *watched) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.kept[w] = struct{}{}
}

func (ls *looks) forget(w *watched) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	delete(ls.kept, w)
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
		case <-ls.kick:
		case <-rounds.C:
			ls.round()
		}
		ls.mu.Lock()
		asked := ls.asked
		ls.asked = map[string][]func(int64){}
		ls.mu.Unlock()
		ls.look(ctx, asked)
		_ = clock.Sleep(ctx, lookPause)
	}
}

// round asks for what the waiters rely on.
func (ls *looks) round() {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for w := range ls.kept {
		for i, key := range w.keys {
			ls.asked[key] = append(ls.asked[key], func(created int64) { w.tell(created == w.created[i]) })
		}
	}
}

func (w *watched) tell(found bool) {
	if found {
		return
	}
	select {
	case w.gone <- struct{}{}:
	default:
	}
}

// look asks as many requests as it takes. One that fails is not made again:
// whoever needs to know asks again.
func (ls *looks) look(ctx context.Context, asked map[string][]func(int64)) {
	var keys []string
	var ops []clientv3.Op
	flush := func() {
		limited, cancel := context.WithTimeout(calling(ctx, &call{urgent: true}), ls.s.b.opts.Timeout)
		defer cancel()
		resp, err := ls.s.b.kv.Txn(limited).Then(ops...).Commit()
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
