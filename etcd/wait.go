package etcd

import (
	"context"
	"errors"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/golockers/locker"
	"github.com/golockers/locker/internal/clock"
	"github.com/golockers/locker/internal/etcderr"
)

// Pauses after a watch, or a look, that failed.
const (
	firstRewatch = 20 * time.Millisecond
	lastRewatch  = time.Second
)

// wait returns when the key is the first of the queue. Its error matches
// errGone, errDeleted or errSilent if the place is lost.
func (a *attempt) wait(ctx context.Context) error {
	if !a.unread && a.front == nil {
		return nil
	}
	// The place in the queue is kept as long as the session is.
	waiting, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(a.h.s.ctx, stop)()
	for failed := 0; a.unread || a.front != nil; {
		var err error
		if a.unread {
			err = a.read(waiting, a.h.created)
		} else if err = a.b.adopt(waiting, a.front); err == nil {
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
		if errors.Is(err, errDeleted) || errors.Is(err, locker.ErrRefused) || !errors.Is(err, errWatchOver) && etcderr.Of(err) == etcderr.Refused {
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
	state := locker.ErrHeld
	if _, behind := a.h.s.validity(); behind != nil {
		state = locker.ErrUnavailable // an outage is not "held" (R17)
	}
	return fmt.Errorf("etcd %s: %w while waiting in its queue: %w", a.b.addr(), ctx.Err(), state)
}

var errWatchOver = errors.New("the watch ended")

// waitFor waits until the key before is gone, and reads who is before now. It
// watches from now on, and reads again when etcd has confirmed it: a watch
// from the past, which needs no second look, is served every 100 ms only.
//
// The driver keeps the watch when it changes the member. What it could miss all
// the same is found by the session's look, which is shared by all waiters.
func (a *attempt) waitFor(ctx context.Context) error {
	watching, stop := context.WithCancel(ctx)
	defer stop()
	missed, tell := context.WithCancel(ctx)
	defer tell()
	looks, before := a.h.s.looks, string(a.front.Key)
	rare := looks.round()
	news := a.b.watcher.Watch(watching, before, clientv3.WithCreatedNotify(), clientv3.WithFilterPut())
	for {
		check, revision := a.look, int64(0)
		select {
		case n, ok := <-news:
			switch {
			case !ok || n.Err() != nil:
				return errWatchOver
			case !n.Created && len(n.Events) == 0:
				continue
			}
			revision = n.Header.Revision
			if !n.Created {
				check = a.read // it is gone
			}
		case <-rare:
			rare = looks.round()
			for key, created := range map[string]int64{a.h.key: a.h.created, before: a.front.CreateRevision} {
				looks.ask(key, func(now int64) {
					if now != created {
						tell()
					}
				})
			}
			continue
		case <-missed.Done():
			return a.look(ctx, 0)
		}
		if err := check(ctx, revision); err != nil || a.front == nil || string(a.front.Key) != before {
			return err
		}
		if _, ok := orphaned(a.front); ok {
			return nil // to be adopted, and watched again
		}
	}
}
