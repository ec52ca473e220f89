package etcd

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/golockers/locker"
	"github.com/golockers/locker/internal/etcderr"
)

// hold is one attempt's key: in the queue, at its head, or perhaps there.
type hold struct {
	b     *Backend
	s     *session
	queue string
	key   string // one of this client's, used again when the hold is over
	owner string // new for each attempt (R10)
	label string
	lost  func()
	// shadows are the marks of the keys beside it.
	shadows []string
	minHold time.Duration
	// tokens are those at the moment at which the key was first found to be the
	// first, or later: whoever held before cannot raise them any more.
	tokens tokens

	// Guarded by b.mu.
	place place
	// created is the key's create revision, from queued on.
	created int64
	// copies: a transaction that puts the key may be under way yet. Then the key
	// is removed together with the possibility of it (R7).
	copies bool
	// deleting: a deletion without an answer may have been carried out.
	deleting bool
}

// place is where a hold is. It only ever moves down this list, and may leave out
// any step.
type place int

const (
	nowhere place = iota // nothing of it is at etcd
	asked                // something of it may be
	queued               // its key has been put
	granted
	settled // nothing of it is there, nor can come
)

// value is what stands at the key.
func (h *hold) value() string { return h.owner + labelMark + h.label }

// shadowed is what stands at a shadow of it that keeps the lock for d.
func (h *hold) shadowed(d time.Duration) string {
	return h.owner + secondsMark + strconv.FormatInt(wholeSeconds(d), 10) + labelMark + h.label
}

// minLook is the least that a look gets.
const minLook = 200 * time.Millisecond

// Renew implements [locker.Hold]: it returns how far the session has been kept
// alive, and looks whether the key is there. A look that gets no answer does
// not matter: the key can only be missing if somebody has deleted it by hand.
func (h *hold) Renew(ctx context.Context) (locker.Validity, error) {
	h.b.mu.Lock()
	over := h.place == settled || h.s.life == gone
	h.b.mu.Unlock()
	if over {
		return locker.Validity{}, h.isLost("is")
	}
	there := make(chan bool, 1)
	h.s.looks.ask(h.key, func(created int64) { there <- created == h.created })
	limited, cancel := context.WithTimeout(ctx, max(h.s.ttl/10, minLook))
	defer cancel()
	select {
	case found := <-there:
		if !found {
			// Its shadows may be left, or a copy of the request may come yet: it is not
			// settled before it is taken back.
			h.lost()
			return locker.Validity{}, h.isLost("is")
		}
	case <-h.s.ctx.Done():
	case <-limited.Done():
	}
	v, err := h.s.validity()
	if err != nil {
		return locker.Validity{}, h.b.failure(ctx, err)
	}
	return v, nil
}

func (h *hold) isLost(is string) error {
	return fmt.Errorf("etcd %s: its key %s gone: %w", h.b.addr(), is, locker.ErrLost)
}

// Release implements [locker.Hold].
func (h *hold) Release(ctx context.Context) error {
	found, err := h.remove(ctx)
	if err != nil {
		return h.b.failure(ctx, err)
	}
	if !found {
		return h.isLost("was")
	}
	return nil
}

// TakeBack implements [locker.TakeBacker].
func (h *hold) TakeBack(ctx context.Context) error {
	_, err := h.remove(ctx)
	return h.b.failure(ctx, err)
}

// remove deletes the key and its shadows, makes what may be under way come to
// nothing, and reports whether the key was there.
func (h *hold) remove(ctx context.Context) (found bool, err error) {
	for {
		h.b.mu.Lock()
		over, copies := h.s.life == gone, h.copies
		done := h.place == settled || over && len(h.shadows) == 0
		h.b.mu.Unlock()
		if done {
			h.settle()
			return false, nil
		}
		// Without its lease, a transaction that is under way fails.
		makeVoid := copies && !over
		found, err = h.delete(ctx, makeVoid)
		if makeVoid && errors.Is(err, rpctypes.ErrNoSpace) {
			// A void key can be put when there is space again. What only deletes is
			// let through, and frees the lock.
			_, _ = h.delete(ctx, false)
		}
		switch {
		case etcderr.LeaseGone(err):
			h.s.become(gone)
		case err != nil:
			return false, err
		default:
			if makeVoid {
				h.s.addVoid()
			}
			h.settle()
			return found, nil
		}
	}
}

// delete makes the one request. It compares the whole owner (R9). The void key
// lives as long as the lease: as long as the transaction could still put the key.
func (h *hold) delete(ctx context.Context, makeVoid bool) (found bool, err error) {
	then := []clientv3.Op{clientv3.OpDelete(h.key)}
	var orElse []clientv3.Op
	for _, mark := range h.shadows {
		// The key has gone with the lease, and its shadow has not.
		then = append(then, clientv3.OpDelete(h.key+mark))
		orElse = append(orElse, h.deleteShadow(mark))
	}
	if makeVoid {
		op := clientv3.OpPut(void(h.queue, h.owner), "", clientv3.WithLease(h.s.id))
		then, orElse = append(then, op), append(orElse, op)
	}
	c := &call{Context: ctx, release: true}
	resp, err := h.b.kv.Txn(c).
		If(clientv3.Compare(clientv3.Value(h.key), "=", h.value())).Then(then...).Else(orElse...).Commit()
	h.b.mu.Lock()
	defer h.b.mu.Unlock()
	h.deleting = h.deleting || c.carriedOut
	return err == nil && (resp.Succeeded || h.deleting), err
}

// deleteShadow deletes a shadow if it is this hold's.
func (h *hold) deleteShadow(mark string) clientv3.Op {
	mine := clientv3.Compare(clientv3.Value(h.key+mark), "=", h.shadowed(h.keeps(mark)))
	return clientv3.OpTxn([]clientv3.Cmp{mine}, []clientv3.Op{clientv3.OpDelete(h.key + mark)}, nil)
}

// keeps is how long a shadow keeps the lock once its key is gone.
func (h *hold) keeps(mark string) time.Duration {
	if mark == minHoldMark {
		return time.Second // it is on a lease of its own as soon as that matters
	}
	return h.s.ttl
}

// settle notes that nothing of the hold is at etcd any more, nor can come.
func (h *hold) settle() {
	b := h.b
	b.mu.Lock()
	defer b.mu.Unlock()
	if h.place == settled {
		return
	}
	h.place = settled
	delete(h.s.holds, h)
	if b.inUse[h.key] == h {
		delete(b.inUse, h.key)
	}
	h.s.leave()
}

// grant grants the hold: from then on it is told of its end.
func (h *hold) grant() error {
	h.b.mu.Lock()
	defer h.b.mu.Unlock()
	if err := h.s.err(); err != nil {
		return err
	}
	h.place = granted
	h.s.holds[h] = struct{}{}
	return nil
}

// keepFor puts the key's shadow on a lease that nobody renews, so that the lock
// is kept for MinHold whatever becomes of the session. No leader expires such a
// lease early: what a leader can have missed are renewals, and there are none.
func (h *hold) keepFor(ctx context.Context) error {
	began := time.Now()
	const spare = time.Second
	lease, err := h.b.leases.Grant(ctx, wholeSeconds(h.minHold+h.minHold/100+spare))
	if err != nil {
		return err
	}
	resp, err := h.b.kv.Txn(ctx).If(clientv3.Compare(clientv3.Value(h.key), "=", h.value())).
		Then(clientv3.OpPut(h.key+minHoldMark, h.shadowed(h.keeps(minHoldMark)), clientv3.WithLease(lease.ID))).Commit()
	switch took := time.Since(began); {
	case err != nil:
		return notOfSession(err)
	case !resp.Succeeded:
		return errDeleted
	case took > spare:
		return &noAnswerError{fmt.Sprintf("MinHold was granted, but the answer took %v", took)}
	}
	return nil
}
