package etcd

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/metadata"

	"github.com/golockers/locker"
)

const (
	// longestPoll bounds how long a waiter relies on its watch (R14).
	longestPoll = 5 * time.Second
	// firstRewatch and lastRewatch are pauses after a watch that failed.
	firstRewatch = 20 * time.Millisecond
	lastRewatch  = time.Second
)

// wait returns when the key is the first of the queue. Its error matches
// errGone, errDeleted or errSilent if the place is lost.
func (a *attempt) wait(ctx context.Context) error {
	failed := 0
	for a.prev != "" {
		err := a.waitFor(ctx)
		switch {
		case err == nil:
			failed = 0
			continue
		case errors.Is(err, errGone), errors.Is(err, errDeleted), errors.Is(err, errSilent):
			return err
		case ctx.Err() != nil, a.b.ctx.Err() != nil:
			return a.leaving(ctx, err)
		}
		// Nobody answers, or the watch was cancelled: the place in the queue is
		// kept as long as the session is.
		failed++
		if err := a.rest(ctx, failed); err != nil {
			return a.leaving(ctx, err)
		}
		// Where no watch can be had, reading has to do.
		if err := a.read(ctx, 0); errors.Is(err, errDeleted) || refused(err) {
			return err
		}
	}
	return nil
}

// leaving says what is known of the lock to one who leaves the queue.
func (a *attempt) leaving(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}
	state := locker.ErrHeld
	if _, behind := a.h.s.validity(); behind != nil {
		state = locker.ErrUnavailable // an outage is not "held" (R17)
	}
	return &queuedError{ctx: ctx.Err(), state: state}
}

// rest waits a little after failures in a row.
func (a *attempt) rest(ctx context.Context, failed int) error {
	d := min(firstRewatch<<min(failed-1, 10), lastRewatch)
	timer := time.NewTimer(d/2 + rand.N(d))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-a.h.s.ended:
		return nil // the next round finds it out
	case <-a.b.ctx.Done():
		return locker.ErrClosed
	case <-ctx.Done():
		return ctx.Err()
	}
}

// waitFor waits until the key before is gone, and reads who is before now. It
// watches from now on, and reads again when etcd has confirmed it: a watch
// from the past, which needs no second look, is served every 100 ms only.
func (a *attempt) waitFor(ctx context.Context) error {
	if err := a.h.s.state(); err != nil {
		return err
	}
	watching, stop := context.WithCancel(ctx)
	defer stop()
	opened, gen := a.b.watch(watching, a.prev)
	var news clientv3.WatchChan
	poll := time.NewTimer(a.b.opts.Timeout)
	defer poll.Stop()
	prev := a.prev
	confirmed := false
	for {
		select {
		case news = <-opened:
			opened = nil
		case n, ok := <-news:
			err := n.Err()
			if !ok {
				err = errWatchOver
			}
			if err != nil {
				a.b.streams.renew(gen)
				return err
			}
			if n.Created {
				confirmed = true
				poll.Reset(jitter(min(a.h.s.ttl, longestPoll)))
			} else if len(n.Events) == 0 {
				continue
			}
			if err := a.read(ctx, n.Header.Revision); err != nil {
				return err
			}
		case <-poll.C:
			if err := a.read(ctx, 0); err != nil {
				return err
			}
			if a.prev != prev || !confirmed {
				// The watch should have told, or has not come about: what it
				// is on may be a member that does not answer.
				a.b.streams.renew(gen)
				return nil
			}
			poll.Reset(jitter(min(a.h.s.ttl, longestPoll)))
		case <-a.h.s.ended:
			return a.h.s.state()
		case <-a.b.ctx.Done():
			return locker.ErrClosed
		case <-ctx.Done():
			return ctx.Err()
		}
		if a.prev != prev {
			return nil
		}
	}
}

func jitter(d time.Duration) time.Duration { return d/2 + rand.N(d/2) }

// watch tells when key is deleted, from the moment at which it says created. It
// ends with ctx.
func (b *Backend) watch(ctx context.Context, key string) (opened <-chan clientv3.WatchChan, gen uint64) {
	ctx, gen = b.streams.on(clientv3.WithRequireLeader(ctx))
	to := make(chan clientv3.WatchChan, 1)
	// The driver may wait for the network; whoever finds nobody there has closed the backend.
	b.spawn(func() { to <- b.client.Watch(ctx, key, clientv3.WithCreatedNotify(), clientv3.WithFilterPut()) })
	return to, gen
}

var errWatchOver = errors.New("the watch ended")

// streams decides which watches share a connection's stream. One that turns
// out bad (its member hangs, its credentials have expired) is left: the driver
// itself would stay on it for as long as the connection looks alive.
type streams struct {
	mu  sync.Mutex
	gen uint64
}

// on returns a context whose watches are made on the present stream. The
// driver shares a stream among contexts with equal metadata.
func (st *streams) on(ctx context.Context) (context.Context, uint64) {
	st.mu.Lock()
	defer st.mu.Unlock()
	return metadata.AppendToOutgoingContext(ctx, "locker-stream", strconv.FormatUint(st.gen, 10)), st.gen
}

// renew leaves the stream, unless somebody else has.
func (st *streams) renew(gen uint64) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.gen == gen {
		st.gen++
	}
}
