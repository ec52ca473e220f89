package etcd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
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
	lost    func()
	// tokens are those at the moment at which the key was first found to be the first, or later: whoever held
	// before cannot raise them any more.
	tokens tokens

	// Guarded by b.mu.
	trace
	again  *hold  // of the same request, made again, whose key is in use as long as one of them is
	absent bool   // Renew has found that its key is not there
	forget func() // has the session not notify it
	// The lease of the floor of its MinHold, and until when that is there at the least.
	keeps   int64
	covered time.Time
}

// value is what stands at the key.
func (h *hold) value() string { return h.owner + labelMark + h.label }

// isAt reports whether kv is the hold's key.
func (h *hold) isAt(kv *mvccpb.KeyValue) bool {
	return string(kv.Key) == h.key && string(kv.Value) == h.value() && kv.Lease == h.l.id
}

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

// Release implements [driver.Hold]. A lock that is kept has no place any more: the floor of its MinHold,
// which is there since the grant and ends by itself, keeps others out.
func (h *hold) Release(ctx context.Context, keep time.Duration) error {
	found, err := false, h.cover(ctx, keep)
	if err == nil {
		found, err = h.end(ctx, keep > 0)
	}
	if err == nil && !found {
		return h.isLost("was")
	}
	return h.b.failure(ctx, err)
}

// Undo implements [driver.Hold].
func (h *hold) Undo(ctx context.Context) error {
	_, err := h.end(ctx, false)
	return h.b.failure(ctx, err)
}

// end deletes the key and its floors, but for that of a MinHold if the lock is to be kept, and makes what may be
// under way come to nothing. It reports whether there was anything that it ends.
func (h *hold) end(ctx context.Context, keep bool) (found bool, err error) {
	for {
		gone := h.l.IsGone()
		h.b.mu.Lock()
		needed, makeVoid := h.removal(gone)
		h.b.mu.Unlock()
		if !needed {
			h.settle()
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
		if makeVoid {
			h.l.addVoid()
		}
		if keep {
			h.become(kept)
			return found, nil
		}
		h.b.mu.Lock()
		keeps := h.keeps
		h.b.mu.Unlock()
		if keeps != 0 {
			_ = h.b.pool.revokeLease(ctx, keeps) // nothing is on it any more
		}
		h.settle()
		return found, nil
	}
}

// delete makes the one request. It compares the whole owner (R9). The void key lives as long as the lease: as
// long as the transaction could still put the key. What a late copy has put after the key was gone is deleted too,
// but it was not the lock.
func (h *hold) delete(ctx context.Context, keep, makeVoid bool) (found bool, err error) {
	then, orElse := []clientv3.Op{clientv3.OpDelete(h.key, clientv3.WithPrevKV())}, []clientv3.Op(nil)
	h.b.mu.Lock()
	hasFloors := h.floors
	if keep {
		h.releasing++
	}
	h.b.mu.Unlock()
	if hasFloors {
		strict, minHold := floorsOf(h.key)
		for i, floor := range []string{minHold, strict} {
			op := clientv3.OpDelete(floor)
			if keep && i == 0 {
				op = clientv3.OpGet(floor)
			}
			then = append(then, op)
			mine := []clientv3.Cmp{hasValue(floor, h.floored())}
			orElse = append(orElse, clientv3.OpTxn(mine, []clientv3.Op{op}, nil)) // the key has gone before
		}
	}
	if makeVoid {
		op := clientv3.OpPut(void(h.queue, h.owner), "", h.l.with())
		then, orElse = append(then, op), append(orElse, op)
	}
	resp, f, err := h.b.pool.txn(ctx, releases, []clientv3.Cmp{hasValue(h.key, h.value())}, then, orElse)
	h.b.mu.Lock()
	defer h.b.mu.Unlock()
	there, isKept := false, false
	switch {
	case err != nil:
	case resp.Succeeded:
		was := resp.Responses[0].GetResponseDeleteRange().PrevKvs
		there = h.created == 0 || len(was) > 0 && was[0].CreateRevision == h.created
		if !there && hasFloors && keep {
			isKept = slices.ContainsFunc(resp.Responses[1].GetResponseRange().Kvs, func(floor *mvccpb.KeyValue) bool {
				return string(floor.Value) == h.floored()
			})
		}
	case hasFloors:
		isKept = resp.Responses[0].GetResponseTxn().Succeeded
	}
	return h.removed(f, err, keep, there, isKept), err
}

// settle notes that nothing of the hold is at etcd any more, nor can come.
func (h *hold) settle() { h.become(settled) }

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
		switch other := b.inUse[h.asked]; {
		case other != h:
			for ; other != nil; other = other.again {
				if other.again == h {
					other.again = h.again
				}
			}
		case h.again != nil:
			b.inUse[h.key], b.inUse[h.asked] = h.again, h.again
		default:
			delete(b.inUse, h.key)
			delete(b.inUse, h.asked)
		}
		h.l.Leave()
	}
	h.stage, h.copies = max(h.stage, as), false // their void key is there as long as the session
}
