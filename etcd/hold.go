package etcd

import (
	"context"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/golockers/locker"
)

// hold is one attempt's key: in the queue, at its head, or perhaps there.
type hold struct {
	b     *Backend
	s     *session
	queue string
	key   string // one of its session's, used again when it is settled
	mark  string // the owner, which is new for each attempt (R10)
	value string // the owner and the label
	token int64  // the key's create revision; 0 while it is not known
	lost  func()

	// Guarded by b.mu.
	settled  bool      // nothing of it is in etcd, nor can be
	struck   bool      // its session has nothing to do with it any more
	owed     bool      // the session has to remove it
	since    time.Time // that it is owed
	doubtful bool      // the transaction that puts it may not have arrived yet
}

// Renew implements [locker.Hold]: it returns how far the session has been kept
// alive, and looks whether the key is there. A look that gets no answer does
// not matter: the key can only be missing if somebody has deleted it by hand.
func (h *hold) Renew(ctx context.Context) (locker.Validity, error) {
	if err := h.err(); err != nil {
		return locker.Validity{}, err
	}
	limit, cancel := context.WithTimeout(ctx, max(h.s.ttl/10, minLook))
	there, err := h.b.looks.look(limit, h.key)
	cancel()
	if err == nil && !there {
		h.gone()
		return locker.Validity{}, fmt.Errorf("etcd %s: its key is gone: %w", h.b.addr(), locker.ErrLost)
	}
	if err := h.err(); err != nil {
		return locker.Validity{}, err
	}
	v, behind := h.s.validity()
	if behind != nil {
		return locker.Validity{}, h.b.failure(ctx, fmt.Errorf("the session is not kept alive: %w", behind))
	}
	return v, nil
}

// labelMark stands between the owner and the label in a key's value.
const labelMark = ":"

// minLook is the least that a look gets.
const minLook = 200 * time.Millisecond

// err returns an error that matches ErrLost if the hold is over.
func (h *hold) err() error {
	h.b.mu.Lock()
	defer h.b.mu.Unlock()
	if h.settled || h.owed || h.s.gone {
		return fmt.Errorf("etcd %s: its key is gone: %w", h.b.addr(), locker.ErrLost)
	}
	return nil
}

// gone notes that somebody else has deleted the key.
func (h *hold) gone() {
	if h.settle() && h.lost != nil {
		h.lost()
	}
}

// Release implements [locker.Hold].
func (h *hold) Release(ctx context.Context) error {
	found, err := h.remove(ctx)
	if err != nil {
		return h.b.failure(ctx, err)
	}
	if !found {
		return fmt.Errorf("etcd %s: its key was gone before the release: %w", h.b.addr(), locker.ErrLost)
	}
	return nil
}

// doubtful is the hold of an Acquire that failed: its key is to be removed.
type doubtful hold

// Renew implements [locker.Hold]; the engine does not call it.
func (d *doubtful) Renew(context.Context) (locker.Validity, error) {
	return locker.Validity{}, locker.ErrLost
}

// Release implements [locker.Hold]. nil is definite: nothing is there, and
// nothing will be (R7).
func (d *doubtful) Release(ctx context.Context) error {
	h := (*hold)(d)
	_, err := h.remove(ctx)
	return h.b.failure(ctx, err)
}

// remove deletes the key, and reports whether it was there. Until that is
// known to have happened, the session owes it.
func (h *hold) remove(ctx context.Context) (found bool, err error) {
	h.b.mu.Lock()
	settled, certain := h.settled, !h.doubtful
	if h.s.gone {
		settled = true
	}
	h.b.mu.Unlock()
	if settled {
		h.settle()
		return false, nil
	}
	if certain {
		found, err = h.deleteKey(ctx)
	} else {
		found, err = h.makeVoid(ctx)
	}
	if leaseGone(err) {
		h.s.end(errGone)
		return false, nil
	}
	if err != nil {
		h.owe()
		return false, err
	}
	h.settle()
	return found, nil
}

// mine is true if the key is there and is that of this attempt (R9).
func (h *hold) mine() clientv3.Cmp {
	return clientv3.Compare(clientv3.Value(h.key), "=", h.value)
}

// deleteKey deletes the key, which is known to have been put.
func (h *hold) deleteKey(ctx context.Context) (found bool, err error) {
	resp, more, err := repeated(ctx, h.b, func(ctx context.Context) (*clientv3.TxnResponse, error) {
		return h.b.client.Txn(ctx).If(h.mine()).Then(clientv3.OpDelete(h.key)).Commit()
	})
	// What one copy does not find, the other may have deleted.
	return err == nil && (resp.Succeeded || more), err
}

// makeVoid deletes the key if it is there, and otherwise makes sure that it
// never will be. The void key lives as long as the lease: as long as the
// transaction could still put the key (R7).
func (h *hold) makeVoid(ctx context.Context) (found bool, err error) {
	resp, _, err := repeated(ctx, h.b, func(ctx context.Context) (*clientv3.TxnResponse, error) {
		return h.b.client.Txn(ctx).
			If(h.mine()).
			Then(clientv3.OpDelete(h.key)).
			Else(clientv3.OpPut(void(h.queue, h.mark), "", clientv3.WithLease(h.s.id))).
			Commit()
	})
	if err != nil {
		return false, err
	}
	if !resp.Succeeded {
		h.s.addVoid()
	}
	return resp.Succeeded, nil
}

// owe leaves the removal to the session, or to the end of its lease if it is
// through.
func (h *hold) owe() {
	h.b.mu.Lock()
	defer h.b.mu.Unlock()
	if h.settled || h.owed {
		return
	}
	h.owed, h.since = true, time.Now()
	if h.s.through {
		h.strike()
		return
	}
	h.s.debts[h] = struct{}{}
}

// settle notes that nothing of the hold is in etcd, nor can be; it returns false
// if that was known.
func (h *hold) settle() bool {
	h.b.mu.Lock()
	defer h.b.mu.Unlock()
	if h.settled {
		return false
	}
	h.settled = true
	h.strike()
	return true
}

// strike ends the hold's place in its session. Whether it is settled is another
// matter: a release may still try. b.mu is held.
func (h *hold) strike() {
	if h.struck {
		return
	}
	h.struck = true
	delete(h.s.debts, h)
	delete(h.s.holds, h)
	if h.b.inUse[h.key] == h {
		delete(h.b.inUse, h.key)
	}
	h.s.leave()
}
