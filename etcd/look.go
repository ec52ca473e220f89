package etcd

import (
	"context"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// looks asks etcd whether keys are there, many in one request: ten thousand
// leases that are renewed cost a few requests per second.
type looks struct {
	b *Backend

	mu      sync.Mutex
	queue   []*look
	running int
}

// look is one question.
type look struct {
	ctx    context.Context
	key    string
	answer chan lookAnswer // takes one without blocking
}

type lookAnswer struct {
	there bool
	err   error
}

const (
	looksAtOnce = 100 // etcd takes 128 operations in a transaction
	lookers     = 4   // one that hangs on a paused member does not hold up the others
)

// look reports whether key is there, as a majority knows it.
func (ls *looks) look(ctx context.Context, key string) (bool, error) {
	l := &look{ctx: ctx, key: key, answer: make(chan lookAnswer, 1)}
	ls.mu.Lock()
	ls.queue = append(ls.queue, l)
	start := ls.running < lookers
	if start {
		ls.running++
	}
	ls.mu.Unlock()
	if start && !ls.b.spawn(ls.run) {
		ls.run() // closed: everybody is told so
	}
	select {
	case a := <-l.answer:
		return a.there, a.err
	case <-ctx.Done():
		return false, ctx.Err()
	}
}

// run answers questions until there are no more.
func (ls *looks) run() {
	for {
		ls.mu.Lock()
		var batch []*look
		for len(ls.queue) > 0 && len(batch) < looksAtOnce {
			l := ls.queue[0]
			ls.queue = ls.queue[1:]
			if l.ctx.Err() == nil {
				batch = append(batch, l)
			}
		}
		if len(batch) == 0 {
			ls.queue = nil
			ls.running--
			ls.mu.Unlock()
			return
		}
		ls.mu.Unlock()
		ls.ask(batch)
	}
}

// ask makes one request. It lasts no longer than the first question does:
// those behind it are asked again by who asked them.
func (ls *looks) ask(batch []*look) {
	ops := make([]clientv3.Op, len(batch))
	for i, l := range batch {
		ops[i] = clientv3.OpGet(l.key, clientv3.WithCountOnly())
	}
	resp, _, err := repeated(batch[0].ctx, ls.b, func(ctx context.Context) (*clientv3.TxnResponse, error) {
		return ls.b.client.Txn(ctx).Then(ops...).Commit()
	})
	for i, l := range batch {
		a := lookAnswer{err: err}
		if err == nil {
			a.there = resp.Responses[i].GetResponseRange().Count > 0
		}
		l.answer <- a
	}
}
