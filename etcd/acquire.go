package etcd

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/golockers/locker"
)

// rounds is how often an attempt that does not wait is made again on another
// session if its own has just expired.
const rounds = 3

// Acquire implements [locker.Backend]. With req.Wait it waits in the queue.
func (b *Backend) Acquire(ctx context.Context, req locker.Request) (locker.Grant, error) {
	if err := ctx.Err(); err != nil {
		return locker.Grant{}, b.failure(ctx, err)
	}
	seconds := int64((req.TTL + time.Second - 1) / time.Second) // R16: never less
	for round := 0; ; round++ {
		grant, err := b.attempt(ctx, req, seconds, round)
		if err == nil {
			return grant, nil
		}
		again := errors.Is(err, errGone) || errors.Is(err, errDeleted)
		if req.Wait {
			// What may be left of a session that has gone silent is its own to
			// revoke. If the outage goes on, the next session cannot be opened.
			again = again || errors.Is(err, errSilent)
		} else {
			again = again && round+1 < rounds
		}
		if !again && (round+1 >= rounds || !settled(ctx, grant)) {
			return grant, b.explain(ctx, err)
		}
		// A lease that lives for no time would make this a busy loop.
		if err := pause(ctx, min(time.Duration(round)*10*time.Millisecond, time.Second)); err != nil {
			return grant, b.explain(ctx, err)
		}
	}
}

// settled makes an unknown outcome known, in a short time: the attempt was not
// granted, nothing of it is left, and it can be made again. A member that
// hangs costs an attempt its time-out, and not its caller the lock.
func settled(ctx context.Context, grant locker.Grant) bool {
	if grant.Hold == nil || ctx.Err() != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, settleTime)
	defer cancel()
	return grant.Hold.Release(ctx) == nil
}

const settleTime = time.Second

// errTakenBack: the void key of this attempt is there.
var errTakenBack = errors.New("the attempt was taken back before it arrived")

// explain makes errors the engine's.
func (b *Backend) explain(ctx context.Context, err error) error {
	var queued *queuedError
	switch {
	case errors.Is(err, locker.ErrHeld):
		return err
	case errors.As(err, &queued) && b.ctx.Err() == nil:
		return fmt.Errorf("etcd %s: %w while waiting in its queue: %w", b.addr(), queued.ctx, queued.state)
	}
	return b.failure(ctx, err)
}

// queuedError is the end of a wait in the queue by its context.
type queuedError struct {
	ctx   error
	state error // ErrHeld, or ErrUnavailable if etcd had not been heard of
}

func (e *queuedError) Error() string { return e.ctx.Error() }

// attempt asks for the lock on one session. Its error matches errGone if the
// session has expired and nothing is left.
func (b *Backend) attempt(ctx context.Context, req locker.Request, seconds int64, round int) (locker.Grant, error) {
	s, err := b.join(ctx, seconds)
	if err != nil {
		return locker.Grant{}, err
	}
	mark := req.Owner
	if round > 0 {
		// An owner of its own for each round, so that nothing that is late of
		// one touches the next (R10).
		mark += "." + strconv.Itoa(round)
	}
	queue := b.keys.queue(req.Name)
	h := &hold{b: b, s: s, queue: queue, mark: mark, value: mark + labelMark + req.Label, lost: req.Lost, doubtful: true}
	b.place(h)
	a := &attempt{b: b, h: h, queued: req.Queued}
	if err = a.take(ctx, req.Wait); err == nil && req.Wait {
		err = a.wait(ctx)
	}
	var v locker.Validity
	if err == nil {
		v, err = s.fresh(ctx)
	}
	if err == nil {
		err = h.grant()
	}
	if err == nil {
		return locker.Grant{Hold: h, Validity: v, Token: uint64(h.token)}, nil
	}
	return a.giveUp(err)
}

// place gives h a key. Which is free is known without asking: the keys of this
// session are its own, and one is free when nothing can be under way
// any more that touches it.
func (b *Backend) place(h *hold) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for n := 0; ; n++ {
		key := h.queue + h.s.name + "." + strconv.Itoa(n)
		switch user := b.inUse[key]; {
		case user == nil:
			b.inUse[key] = h
		case user.value != h.value: // otherwise a repeated request (R11)
			continue
		}
		h.key = key
		return
	}
}

// giveUp says what may be left of the attempt: nothing, or a hold for the
// engine to release, which the session owes whatever becomes of the engine (R7).
func (a *attempt) giveUp(err error) (locker.Grant, error) {
	h := a.h
	if errors.Is(err, rpctypes.ErrLeaseNotFound) {
		h.s.end(errGone)
		err = errGone
	}
	if !a.sent || h.s.state() == errGone { //nolint:errorlint // one of our own
		h.settle()
		return locker.Grant{}, err
	}
	h.owe()
	return locker.Grant{Hold: (*doubtful)(h)}, err
}

// grant makes the hold one that is told of its end.
func (h *hold) grant() error {
	h.b.mu.Lock()
	defer h.b.mu.Unlock()
	if err := h.s.ending(); err != nil {
		return err
	}
	h.s.holds[h] = struct{}{}
	return nil
}

// pause waits for d, or until ctx is done.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
