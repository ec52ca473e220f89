package etcd

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/session"
)

// hold is one attempt's key: in the queue, at its head, or perhaps there.
type hold struct {
	b       *Backend
	l       *lease
	queue   string
	key     string // one of this client's, used again when the hold is over
	asked   string // by which the same request, made again, finds the key: it is no key itself
	shared  bool
	owner   string // new for each attempt (R10)
	label   string
	minHold time.Duration
	turn    chan struct{} // has room for one Release; nil: without a MinHold, they need not wait for each other
	lost    func()
	// tokens are those at the moment at which the key was first found to be the first, or later: whoever held
	// before cannot raise them any more.
	tokens tokens

	// Guarded by b.mu.
	trace
	again  *hold  // of the same request, made again, whose key is in use as long as one of them is
	absent bool   // Renew has found that its key is not there
	forget func() // has the session not notify it
	// The lease that the floor of its MinHold is on, and until when that is there at the least.
	keeps   int64
	covered time.Time
}

// value is what stands at the key.
func (h *hold) value() string { return h.owner + labelMark + h.label }

// floored is what stands at its floors.
func (h *hold) floored() string {
	seconds, created := strconv.FormatInt(wholeSeconds(h.l.ttl), 10), strconv.FormatInt(h.created, 10)
	return h.owner + secondsMark + seconds + secondsMark + created + labelMark + h.label
}

// grant grants the hold: from then on it is notified of its end.
func (h *hold) grant(ctx context.Context) error {
	if h.b.opts.StrictExpiry || h.minHold > 0 {
		if err := h.putFloors(ctx); err != nil {
			return err
		}
	}
	h.b.mu.Lock()
	defer h.b.mu.Unlock()
	forget, err := h.l.Grant(h.lost)
	if err == nil {
		h.stage, h.forget = granted, forget
	}
	return err
}

// minLook is the least that a look gets.
const minLook = 200 * time.Millisecond

// Renew implements [driver.Hold]: it returns how far the session has been kept
// alive, and looks whether the key is there. A look that gets no answer does
// not matter: the key can only be missing if somebody has deleted it by hand.
func (h *hold) Renew(ctx context.Context) (driver.Validity, error) {
	if h.isOver() {
		return driver.Validity{}, h.isLost("is")
	}
	limited, cancel := context.WithTimeout(ctx, max(h.l.ttl/10, minLook))
	defer cancel()
	if h.l.isMissing(limited, h.key, h.created) {
		// A floor may be left, or a copy of the request may come yet: it is not
		// settled before it is taken back.
		h.b.mu.Lock()
		h.absent = true
		h.b.mu.Unlock()
		h.lost()
		return driver.Validity{}, h.isLost("is")
	}
	v, err := h.l.Validity()
	switch {
	case h.isOver(): // as another renewal has found meanwhile
		return driver.Validity{}, h.isLost("is")
	case err != nil:
		return driver.Validity{}, h.b.failure(ctx, err)
	}
	return v, nil
}

func (h *hold) isOver() bool {
	h.b.mu.Lock()
	defer h.b.mu.Unlock()
	return h.stage >= kept || h.absent || h.l.IsGone() || errors.Is(h.l.Err(), session.ErrGone)
}

func (h *hold) isLost(is string) error {
	return fmt.Errorf("etcd %s: its key %s gone: %w", h.b.addr(), is, driver.ErrLost)
}

// Release implements [driver.Hold]. A lock that is kept has no place any more: the floor of its MinHold keeps
// others out, and ends by itself. Several releases are made one after the other: only what became of those before
// tells whether a floor without its place is that of a lock that is kept, or that was lost.
func (h *hold) Release(ctx context.Context, keep time.Duration) error {
	if h.turn != nil {
		select {
		case h.turn <- struct{}{}:
			defer func() { <-h.turn }()
		case <-ctx.Done():
			return h.b.failure(ctx, ctx.Err())
		}
	}
	found, err := h.end(ctx, keep)
	if err == nil && !found {
		return h.isLost("was")
	}
	return h.b.failure(ctx, err)
}

// Undo implements [driver.Hold].
func (h *hold) Undo(ctx context.Context) error {
	_, err := h.end(ctx, 0)
	return h.b.failure(ctx, err)
}

// end deletes the key and its floors, but for that of a MinHold if the lock is to be kept, and makes what may be
// under way come to nothing. It reports whether there was anything that it ends.
func (h *hold) end(ctx context.Context, keep time.Duration) (found bool, err error) {
	for {
		gone := h.l.IsGone()
		h.b.mu.Lock()
		needed, makeVoid := h.removal(gone)
		h.b.mu.Unlock()
		if !needed {
			h.become(settled)
			return false, nil
		}
		found, err = h.delete(ctx, keep, makeVoid)
		if makeVoid && errors.Is(err, rpctypes.ErrNoSpace) {
			// A void key can be put when there is space again. What only deletes is let through, and frees
			// the lock.
			_, _ = h.delete(ctx, keep, false)
		}
		switch {
		case leaseGone(err):
			h.l.Ended()
			continue
		case err != nil:
			return false, err
		}
		h.b.mu.Lock()
		if makeVoid {
			if h.l.voids++; h.l.voids >= maxVoids {
				h.l.Retire()
			}
		}
		keeps := h.keeps
		h.b.mu.Unlock()
		if keep > 0 {
			h.become(kept)
			return found, nil
		}
		if keeps != 0 {
			_ = h.b.pool.revokeLease(ctx, keeps) // nothing is on it any more
		}
		h.become(settled)
		return found, nil
	}
}

// delete makes the one request. It compares the whole owner (R9), and the revision where the key may have been put
// again after it was gone, by a late copy or by the same request: that is deleted too, but it was not the lock. The
// void key lives as long as the lease: as long as the transaction could still put the key.
func (h *hold) delete(ctx context.Context, keep time.Duration, makeVoid bool) (found bool, err error) {
	longer, cover, err := h.cover(ctx, keep)
	if err != nil {
		return false, err
	}
	h.b.mu.Lock()
	hasFloors, created, floored := h.floors, h.created, h.floored()
	again := h.copies || hasFloors || h.again != nil || h.b.inUse[h.asked] != h
	h.b.mu.Unlock()
	remove := clientv3.OpDelete(h.key)
	cmps, then, orElse := []clientv3.Cmp{hasValue(h.key, h.value())}, []clientv3.Op{remove}, []clientv3.Op(nil)
	if hasFloors {
		strict, minHold := floorsOf(h.key)
		floor := clientv3.OpDelete(minHold)
		if keep > 0 {
			floor = clientv3.OpGet(minHold)
		}
		orElse = append(orElse, ifIs(minHold, floored, floor), ifIs(strict, floored, clientv3.OpDelete(strict)))
		if longer != 0 {
			floor = cover
		}
		then = append(then, floor, clientv3.OpDelete(strict))
	}
	if again && created > 0 {
		cmps = append(cmps, is(h.key, created))
		orElse = append(orElse, ifIs(h.key, h.value(), remove))
	}
	putVoid := clientv3.OpPut(void(h.queue, h.owner), "", h.l.with())
	if makeVoid {
		then, orElse = append(then, putVoid), append(orElse, putVoid)
	}
	resp, f, err := h.b.pool.txn(ctx, releases, cmps, then, orElse)
	there := err == nil && resp.Succeeded
	isKept := err == nil && !there && hasFloors && resp.Responses[0].GetResponseTxn().Succeeded
	unused := longer != 0 && (err == nil && !there || err != nil && !f.carriedOut)
	if longer != 0 && leaseGone(err) {
		err = notOfSession(err)
		if makeVoid { // or it is the session's that is gone: the void key alone tells
			if _, _, voidErr := h.b.pool.txn(ctx, releases, nil, []clientv3.Op{putVoid}, nil); voidErr != nil {
				err = voidErr
			}
		}
	}
	h.b.mu.Lock()
	on := longer
	switch {
	case keep > 0 && longer == 0:
		h.asGranted = h.asGranted || f.carriedOut
	case isKept && longer != 0:
		// On the lease of a release, perhaps by a copy of this one. Or as it was granted, which is too short, unless
		// a release found that long enough.
		on = resp.Responses[0].GetResponseTxn().Responses[0].GetResponseRange().Kvs[0].Lease
		isKept, unused = on != h.keeps || h.asGranted, on != longer
	}
	var over []int64 // leases that nothing is on, nor will be
	if longer != 0 && (there || isKept) {
		if h.keeps != 0 && h.keeps != on {
			over = append(over, h.keeps) // it was on that before
		}
		h.keeps, h.asGranted = on, true // what is on it is long enough, also to a release that finds it so
	}
	found = h.removed(f, err, keep > 0, there, isKept)
	h.b.mu.Unlock()
	if unused {
		over = append(over, longer)
	}
	for _, lease := range over {
		_ = h.b.pool.revokeLease(ctx, lease)
	}
	return found, err
}

// become notes that nothing of the hold is on the session's lease any more, nor can come: it is kept, or
// settled.
func (h *hold) become(as stage) {
	b := h.b
	b.mu.Lock()
	defer b.mu.Unlock()
	if h.stage < kept {
		if h.forget != nil {
			h.forget()
		}
		first := b.inUse[h.asked]
		for at := &first; *at != nil; at = &(*at).again {
			if *at == h {
				*at = h.again
				break
			}
		}
		if b.inUse[h.key], b.inUse[h.asked] = first, first; first == nil {
			delete(b.inUse, h.key)
			delete(b.inUse, h.asked)
		}
		h.l.Leave()
	}
	h.stage, h.copies = max(h.stage, as), false // their void key is there as long as the session
}
