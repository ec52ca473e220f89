package etcd

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/clock"
)

// Pauses after a watch, or a look, that failed.
const (
	firstRewatch = 20 * time.Millisecond
	lastRewatch  = time.Second
)

var (
	// errWatchOver: there is no watch any more.
	errWatchOver = errors.New("the watch ended")
	// errDeleted: the key of a waiter is gone, with its session or by hand.
	errDeleted = errors.New("its place in the queue is gone")
)

// wait returns when the key is the first of the queue. Its error matches errGone, errDeleted or errSilent if
// the place is lost.
func (a *attempt) wait(ctx context.Context) error {
	if a.at == first {
		return nil
	}
	// The place in the queue is kept as long as the session is.
	waiting, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(a.h.s.ctx, stop)()
	for failed := 0; a.at != first; {
		var err error
		switch {
		case a.at == somewhere:
			err = a.read(waiting, a.h.created)
		case isUncounted(a.before):
			if err = a.b.sweep(waiting, a.h.queue); err == nil {
				err = a.look(waiting, 0)
			}
		default:
			err = a.waitFor(waiting)
		}
		if err == nil {
			failed = 0
			continue
		}
		if over := a.h.s.over(); over != nil {
			return over
		}
		if ctx.Err() != nil {
			return a.leaving(ctx)
		}
		if errors.Is(err, errDeleted) || errors.Is(err, driver.ErrRefused) || outcomeOf(err) == refused {
			return err
		}
		// Nobody answers, or the watch was cancelled.
		_ = clock.Sleep(waiting, clock.Jitter(clock.BackOff(failed, firstRewatch, lastRewatch)))
		failed++
	}
	return nil
}

// leaving says what is known of the lock to one who leaves the queue.
func (a *attempt) leaving(ctx context.Context) error {
	state := driver.ErrHeld
	if _, behind := a.h.s.validity(); behind != nil {
		state = driver.ErrUnavailable // an outage is not "held" (R17)
	}
	return fmt.Errorf("etcd %s: %w while waiting in its queue: %w", a.b.addr(), ctx.Err(), state)
}

// waitFor waits until the key before is gone, and reads who is before now. It reads again when etcd has
// confirmed the watch, and when it has failed to.
//
// What the watch could miss all the same is found by the session's poll, in requests that many waiters share.
func (a *attempt) waitFor(ctx context.Context) error {
	poll, before := a.h.s.poll, a.before
	ticks := time.NewTicker(clock.Jitter(max(a.h.s.ttl, waitersPoll)))
	defer ticks.Stop()
	missed := make(chan struct{}, 2)
	told, stop := a.b.watches.deletion(string(before.Key))
	defer stop()
	for {
		n, changed := news{}, false
		select {
		case n = <-told:
		case <-missed:
			changed = true
		case <-ticks.C:
			both := map[string]int64{a.h.key: a.h.created, string(before.Key): before.CreateRevision}
			for key, created := range both {
				poll.created(key, func(now int64) {
					if now != created {
						select {
						case missed <- struct{}{}:
						default:
						}
					}
				})
			}
			continue
		case <-ctx.Done():
			return ctx.Err()
		}
		check := a.look
		if n.is == deleted {
			check = a.read
		}
		err := check(ctx, n.revision)
		switch {
		case err != nil, changed, !a.isBehind(before), isUncounted(a.before):
			return err
		case n.is == failed:
			return errWatchOver
		}
	}
}

// isBehind reports whether kv is still the key before.
func (a *attempt) isBehind(kv *mvccpb.KeyValue) bool {
	return a.at == behind && string(a.before.Key) == string(kv.Key)
}

// look asks whether the key before is still there, at the given revision or later; at 0, as a majority knows
// it now. Only if it is not, the queue is read: that costs etcd time for each key in it. It fails if our own
// key is not there any more: an attempt that did not look could believe in a lock that it does not have.
func (a *attempt) look(ctx context.Context, revision int64) error {
	resp, err := a.ask(ctx, ordinary, revision, clientv3.OpGet(a.h.key), clientv3.OpGet(string(a.before.Key)))
	if err != nil {
		return err
	}
	now := resp.Responses[1].GetResponseRange().Kvs
	if len(now) > 0 && now[0].CreateRevision == a.before.CreateRevision {
		a.before = now[0]
		return nil
	}
	return a.read(ctx, revision)
}

// read finds the key before in the queue.
func (a *attempt) read(ctx context.Context, revision int64) error {
	before := append(newest(a.h.inTheWay()), clientv3.WithMaxCreateRev(a.h.created-1))
	gets := []clientv3.Op{clientv3.OpGet(a.h.key), clientv3.OpGet(a.h.queue, before...)}
	if a.h.isShared() {
		gets = append(gets, counting(a.h.queue)...)
	} else {
		gets = append(gets, clientv3.OpGet(tokensKey(a.h.queue)))
	}
	resp, err := a.ask(ctx, readers, revision, gets...)
	if err != nil {
		return err
	}
	found := front(resp.Responses[1].GetResponseRange().Kvs)
	if a.h.isShared() {
		if found == nil {
			err = a.bounded(ctx, resp.Responses[2:])
		}
	} else {
		a.h.tokens, err = readTokens(resp.Responses[2])
	}
	if err != nil {
		return err
	}
	if a.at, a.before = first, found; found != nil {
		a.at = behind
		if a.queued != nil {
			a.queued() // it is etcd's answer, and not one that is still awaited
		}
	}
	return nil
}

// ask makes requests of which the first is for our own key.
func (a *attempt) ask(ctx context.Context, in line, revision int64, gets ...clientv3.Op) (
	resp *clientv3.TxnResponse, err error,
) {
	if revision > 0 {
		// Any member will do that has come so far, and most have.
		revision = max(revision, a.h.created)
		local := make([]clientv3.Op, len(gets))
		for i, op := range gets {
			clientv3.WithSerializable()(&op)
			local[i] = op
		}
		resp, err = a.b.pool.read(ctx, in, local...)
	}
	if revision == 0 || err == nil && resp.Header.Revision < revision {
		resp, err = a.b.pool.read(ctx, in, gets...)
	}
	if err != nil {
		return nil, err
	}
	mine := resp.Responses[0].GetResponseRange().Kvs
	if len(mine) == 0 || mine[0].CreateRevision != a.h.created {
		a.b.mu.Lock()
		defer a.b.mu.Unlock()
		a.h.missing(a.h.shadow != without)
		return nil, errDeleted
	}
	return resp, nil
}
