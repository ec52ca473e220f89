package etcd

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

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
	h := &hold{b: b, s: s, void: b.keys.void(mark), value: mark + labelMark + req.Label, lost: req.Lost, doubtful: true}
	b.place(h, queue)
	a := &attempt{b: b, h: h, queue: queue}
	if req.Wait {
		err = a.enter(ctx)
		if err == nil {
			err = a.wait(ctx)
		}
	} else {
		err = a.try(ctx)
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
// client are its own, and one is free when nothing can be under way
// any more that touches it.
func (b *Backend) place(h *hold, queue string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for n := 0; ; n++ {
		key := queue + b.id + "." + strconv.Itoa(n)
		switch user := b.inUse[key]; {
		case user == nil:
			b.inUse[key] = h
		case user.value != h.value: // equal: a repeated request (R11)
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
	if h.s.over {
		if h.s.gone {
			return errGone
		}
		return errSilent
	}
	h.s.holds[h] = struct{}{}
	return nil
}

// attempt is one key on its way through a queue.
type attempt struct {
	b     *Backend
	h     *hold
	queue string
	sent  bool // something of it may be in etcd

	prev string // the key before; "" if there is none
}

// unused is the condition under which the key may be put: it is not there, and
// was not taken back before it came.
func (a *attempt) unused() []clientv3.Cmp {
	return []clientv3.Cmp{
		clientv3.Compare(clientv3.CreateRevision(a.h.key), "=", 0),
		clientv3.Compare(clientv3.CreateRevision(a.h.void), "=", 0),
	}
}

func (a *attempt) put() clientv3.Op {
	return clientv3.OpPut(a.h.key, a.h.value, clientv3.WithLease(a.h.s.id))
}

// commit sends the transaction that puts the key.
func (a *attempt) commit(ctx context.Context, txn func(clientv3.Txn) clientv3.Txn) (*clientv3.TxnResponse, error) {
	var resp *clientv3.TxnResponse
	err := a.b.call(ctx, func(ctx context.Context) (err error) {
		resp, err = txn(a.b.client.Txn(ctx)).Commit()
		return err
	})
	if err != nil {
		a.sent = carriedOut(err)
		return nil, err
	}
	a.sent = true
	a.arrived()
	return resp, nil
}

// arrived notes that the transaction will not come any more: to delete the key
// is then enough.
func (a *attempt) arrived() {
	a.b.mu.Lock()
	defer a.b.mu.Unlock()
	a.h.doubtful = false
}

// try takes the lock if the queue is empty, and leaves nothing if not.
func (a *attempt) try(ctx context.Context) error {
	resp, err := a.commit(ctx, func(txn clientv3.Txn) clientv3.Txn {
		return txn.If(
			clientv3.Compare(clientv3.CreateRevision(a.queue).WithPrefix(), "=", 0),
			clientv3.Compare(clientv3.CreateRevision(a.h.void), "=", 0),
		).Then(a.put()).Else(clientv3.OpGet(a.queue, clientv3.WithFirstCreate()...))
	})
	if err != nil {
		return err
	}
	if resp.Succeeded {
		a.h.token = resp.Header.Revision
		return nil
	}
	first := resp.Responses[0].GetResponseRange().Kvs
	switch {
	case len(first) == 0:
		a.sent = false
		return errTakenBack
	case string(first[0].Value) == a.h.value: // a repeated request: it is ours already (R11)
		a.h.token = first[0].CreateRevision
		return nil
	}
	a.sent = false
	return locker.ErrHeld
}

// enter takes the last place in the queue, and sees who is before it.
func (a *attempt) enter(ctx context.Context) error {
	resp, err := a.commit(ctx, func(txn clientv3.Txn) clientv3.Txn {
		return txn.If(a.unused()...).
			Then(clientv3.OpGet(a.queue, append(clientv3.WithLastCreate(), clientv3.WithKeysOnly())...), a.put()).
			Else(clientv3.OpGet(a.h.key))
	})
	if err != nil {
		return err
	}
	if resp.Succeeded {
		a.h.token = resp.Header.Revision
		a.behind(resp.Responses[0].GetResponseRange().Kvs)
		return nil
	}
	mine := resp.Responses[0].GetResponseRange().Kvs
	if len(mine) == 0 || string(mine[0].Value) != a.h.value {
		a.sent = false
		return errTakenBack
	}
	a.h.token = mine[0].CreateRevision // a repeated request: it keeps its place (R11)
	return a.read(ctx, 0)
}

// behind notes the key before ours.
func (a *attempt) behind(kvs []*mvccpb.KeyValue) {
	a.prev = ""
	if len(kvs) > 0 {
		a.prev = string(kvs[0].Key)
	}
}

// errDeleted: the key of a waiter is gone, with its session or by hand.
var errDeleted = errors.New("its place in the queue is gone")

// read looks at the queue, as it is at the given revision or later; at 0, as a
// majority knows it now. It fails if the key is not there any more: who does
// not look may believe in a lock that he does not have.
func (a *attempt) read(ctx context.Context, revision int64) error {
	ops := func(opts ...clientv3.OpOption) []clientv3.Op {
		before := append(clientv3.WithLastCreate(), clientv3.WithKeysOnly(), clientv3.WithMaxCreateRev(a.h.token-1))
		return []clientv3.Op{
			clientv3.OpGet(a.h.key, append(opts, clientv3.WithKeysOnly())...),
			clientv3.OpGet(a.queue, append(before, opts...)...),
		}
	}
	var resp *clientv3.TxnResponse
	ask := func(opts ...clientv3.OpOption) (err error) {
		resp, _, err = repeated(ctx, a.b, func(ctx context.Context) (*clientv3.TxnResponse, error) {
			return a.b.client.Txn(ctx).Then(ops(opts...)...).Commit()
		})
		return err
	}
	var err error
	if revision > 0 {
		// Any member will do that has come so far, and most have.
		revision = max(revision, a.h.token)
		err = ask(clientv3.WithSerializable())
	}
	if revision == 0 || err == nil && resp.Header.Revision < revision {
		err = ask()
	}
	if err != nil {
		return err
	}
	mine := resp.Responses[0].GetResponseRange().Kvs
	if len(mine) == 0 || mine[0].CreateRevision != a.h.token {
		a.sent = false
		return errDeleted
	}
	a.behind(resp.Responses[1].GetResponseRange().Kvs)
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
