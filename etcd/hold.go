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
)

// hold is one attempt's key: in the queue, at its head, or perhaps there.
type hold struct {
	b       *Backend
	s       *session
	queue   string
	key     string // one of this client's, used again when the hold is over
	owner   string // new for each attempt (R10)
	label   string
	lost    func()
	shadow  shadow // the key beside it
	minHold time.Duration
	keep    int64 // the lease of a shadow that is kept; set before Acquire returns
	// since is when it was granted.
	since time.Time
	// tokens are those at the moment at which the key was first found to be the first, or later: whoever held
	// before cannot raise them any more.
	tokens tokens

	// absent: Renew has found that its key is not there. Guarded by b.mu, as the trace is.
	absent bool
	trace
}

// value is what stands at the key.
func (h *hold) value() string { return h.owner + labelMark + h.label }

// isAt reports whether kv is the hold's key.
func (h *hold) isAt(kv *mvccpb.KeyValue) bool {
	return string(kv.Key) == h.key && string(kv.Value) == h.value() && kv.Lease == h.s.id
}

// shadowed is what stands at its shadow.
func (h *hold) shadowed() string {
	var keeps int64
	if h.shadow == strict {
		keeps = wholeSeconds(max(h.s.ttl, h.minHold))
	}
	return h.owner + secondsMark + strconv.FormatInt(keeps, 10) + labelMark + h.label
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
	there := make(chan bool, 1)
	h.s.poll.created(h.key, func(revision int64) { there <- revision == h.created })
	limited, cancel := context.WithTimeout(ctx, max(h.s.ttl/10, minLook))
	defer cancel()
	select {
	case found := <-there:
		if !found {
			// Its shadow may be left, or a copy of the request may come yet: it is not
			// settled before it is taken back.
			h.b.mu.Lock()
			h.absent = true
			h.b.mu.Unlock()
			h.lost()
			return driver.Validity{}, h.isLost("is")
		}
	case <-h.s.ctx.Done():
	case <-limited.Done():
	}
	v, err := h.s.validity()
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
	return h.stage == settled || h.absent || errors.Is(h.s.err(), errGone)
}

func (h *hold) isLost(is string) error {
	return fmt.Errorf("etcd %s: its key %s gone: %w", h.b.addr(), is, driver.ErrLost)
}

// Release implements [driver.Hold].
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

// Undo implements [driver.Hold].
func (h *hold) Undo(ctx context.Context) error {
	_, err := h.remove(ctx)
	return h.b.failure(ctx, err)
}

// remove deletes the key and its shadow, makes what may be under way come to nothing, and reports whether
// the key was there.
func (h *hold) remove(ctx context.Context) (found bool, err error) {
	for {
		h.b.mu.Lock()
		needed, makeVoid := h.removal(h.s.life == gone, h.shadow != without)
		h.b.mu.Unlock()
		if !needed {
			h.settle()
			return false, nil
		}
		found, err = h.delete(ctx, makeVoid)
		if makeVoid && errors.Is(err, rpctypes.ErrNoSpace) {
			// A void key can be put when there is space again. What only deletes is let through, and frees
			// the lock.
			_, _ = h.delete(ctx, false)
		}
		switch {
		case leaseGone(err):
			h.s.become(gone)
		case err != nil:
			return false, err
		default:
			if makeVoid {
				h.s.addVoid()
			}
			if h.keep != 0 {
				_ = h.b.pool.revokeLease(ctx, h.keep) // nothing hangs on it
			}
			h.settle()
			return found, nil
		}
	}
}

// delete makes the one request. It compares the whole owner (R9). The void key lives as long as the lease: as
// long as the transaction could still put the key.
func (h *hold) delete(ctx context.Context, makeVoid bool) (found bool, err error) {
	then := []clientv3.Op{clientv3.OpDelete(h.key)}
	var orElse []clientv3.Op
	if h.shadow != without {
		then = append(then, clientv3.OpDelete(shadowOf(h.key)))
		orElse = append(orElse, h.ifShadowed(clientv3.OpDelete(shadowOf(h.key)))) // the key has gone with the lease
	}
	if makeVoid {
		op := clientv3.OpPut(void(h.queue, h.owner), "", h.s.onLease())
		then, orElse = append(then, op), append(orElse, op)
	}
	mine := clientv3.Compare(clientv3.Value(h.key), "=", h.value())
	resp, f, err := h.b.pool.txn(ctx, releases, []clientv3.Cmp{mine}, then, orElse)
	h.b.mu.Lock()
	defer h.b.mu.Unlock()
	return h.removed(f, err, err == nil && resp.Succeeded), err
}

// ifShadowed makes op if the shadow is this hold's.
func (h *hold) ifShadowed(op clientv3.Op) clientv3.Op {
	mine := clientv3.Compare(clientv3.Value(shadowOf(h.key)), "=", h.shadowed())
	return clientv3.OpTxn([]clientv3.Cmp{mine}, []clientv3.Op{op}, nil)
}

// putShadow puts the shadow on a lease.
func (h *hold) putShadow(lease int64) clientv3.Op {
	return clientv3.OpPut(shadowOf(h.key), h.shadowed(), clientv3.WithLease(clientv3.LeaseID(lease)))
}

// settle notes that nothing of the hold is at etcd any more, nor can come.
func (h *hold) settle() {
	b := h.b
	b.mu.Lock()
	defer b.mu.Unlock()
	if h.stage == settled {
		return
	}
	h.stage = settled
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
	h.stage, h.since = granted, time.Now()
	h.s.holds[h] = struct{}{}
	return nil
}

// keptFor is how long the lease of a shadow lasts that keeps the lock for MinHold from its grant on.
func (h *hold) keptFor() time.Duration { return h.minHold + h.minHold/100 + keepSpare }

// keepSpare is how late after its lease a shadow may be put on it.
const keepSpare = time.Second

// keepShadow puts the key's shadow on a lease that nobody renews, so that the lock
// is kept for MinHold whatever becomes of the session. No leader expires such a
// lease early: what a leader can have missed are renewals, and there are none.
func (h *hold) keepShadow(ctx context.Context) error {
	began := time.Now()
	h.keep = newLease()
	if _, err := h.b.pool.grantLease(ctx, h.keep, wholeSeconds(h.keptFor())); err != nil {
		return err
	}
	mine := clientv3.Compare(clientv3.Value(h.key), "=", h.value())
	put := []clientv3.Op{h.putShadow(h.keep)}
	resp, _, err := h.b.pool.txn(ctx, ordinary, []clientv3.Cmp{mine}, put, nil)
	switch took := time.Since(began); {
	case err != nil:
		return notOfSession(err)
	case !resp.Succeeded:
		return errDeleted
	case took > keepSpare:
		return &noAnswerError{fmt.Sprintf("MinHold was granted, but the answer took %v", took)}
	}
	return nil
}

// uncover is for the strict shadows of those who held when Close told them that it is over: nobody believes in
// them any more. They are deleted, or kept for what is left of a MinHold. What fails is found by the next who
// asks for the name, and waited out, and so is what a session has that could not be revoked: etcd is silent, and
// Close does not wait for it once more.
func (b *Backend) uncover() {
	ctx, cancel := context.WithTimeout(context.Background(), revokeTimeout)
	defer cancel()
	left := map[int64][]*hold{} // by seconds
	b.mu.Lock()
	for _, h := range b.inUse {
		if h.stage == granted && h.shadow == strict && h.s.life == gone {
			seconds := int64(0)
			if h.minHold > 0 {
				seconds = wholeSeconds(max(0, h.keptFor()-time.Since(h.since)))
			}
			left[seconds] = append(left[seconds], h)
		}
	}
	b.mu.Unlock()
	for seconds, holds := range left {
		lease := newLease()
		if seconds > 0 {
			if _, err := b.pool.grantLease(ctx, lease, seconds); err != nil {
				return
			}
		}
		var ops []clientv3.Op
		for _, h := range holds {
			op := clientv3.OpDelete(shadowOf(h.key))
			if seconds > 0 {
				op = h.putShadow(lease)
			}
			ops = append(ops, h.ifShadowed(op))
		}
		for chunk := range slices.Chunk(ops, keysAtOnce) {
			_, _, _ = b.pool.txn(ctx, urgent, nil, chunk, nil)
		}
	}
}
