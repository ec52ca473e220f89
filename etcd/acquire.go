package etcd

import (
	"context"
	"errors"
	"strconv"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/golockers/locker"
	"github.com/golockers/locker/internal/etcderr"
)

// sessions is how many an attempt is made on, one after the other, if they expire.
const sessions = 3

// Acquire implements [locker.Backend]. With req.Wait it waits in the queue.
func (b *Backend) Acquire(ctx context.Context, req locker.Request) (locker.Grant, error) {
	if err := ctx.Err(); err != nil {
		return locker.Grant{}, b.failure(ctx, err)
	}
	for n := 1; ; n++ {
		grant, err := b.attempt(ctx, req)
		switch {
		case err == nil:
			return grant, nil
		case errors.Is(err, errGone) && grant.Hold == nil && n < sessions:
			continue // nothing can come of it, and what may be left is not taken over
		}
		return grant, b.failure(ctx, err)
	}
}

// errTakenBack: the void key of this attempt is there.
var errTakenBack = errors.New("the attempt was taken back before it arrived")

// attempt asks for the lock on one session. What it may leave is in the Grant
// beside its error.
func (b *Backend) attempt(ctx context.Context, req locker.Request) (locker.Grant, error) {
	s, err := b.join(ctx, wholeSeconds(req.TTL))
	if err != nil {
		return locker.Grant{}, err
	}
	h := &hold{b: b, s: s, queue: b.keys.queue(req.Name), owner: req.Owner, label: req.Label, lost: req.Lost, minHold: req.MinHold}
	if b.opts.StrictExpiry {
		h.shadows = append(h.shadows, strictMark)
	}
	if req.MinHold > 0 {
		h.shadows = append(h.shadows, minHoldMark)
	}
	b.name(h)
	a := &attempt{b: b, h: h, queued: req.Queued}
	v, err := a.run(ctx, req.Wait)
	if err == nil {
		return locker.Grant{Hold: h, Validity: v, Token: h.tokens.Of(h.created)}, nil
	}
	if etcderr.LeaseGone(err) {
		s.become(gone)
		err = errGone
	}
	b.mu.Lock()
	left := h.place > nowhere && (s.life != gone || len(h.shadows) > 0)
	b.mu.Unlock()
	if left {
		return locker.Grant{Hold: h}, err // for the engine to take back (R7)
	}
	h.settle()
	return locker.Grant{}, err
}

// name gives h a key of this client's that nothing can be under way for. Etcd
// keeps deleted keys in its index until it is compacted, so they are used again.
func (b *Backend) name(h *hold) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for n := 0; ; n++ {
		h.key = h.queue + b.id + "." + strconv.Itoa(n)
		if user := b.inUse[h.key]; user == nil {
			b.inUse[h.key] = h
			return
		} else if user.owner == h.owner && user.s == h.s {
			return // a repeated request (R11)
		}
	}
}

// attempt is one key on its way through a queue.
type attempt struct {
	b      *Backend
	h      *hold
	queued func()           // told that others are before it; may be nil
	front  *mvccpb.KeyValue // the key before; nil if there is none
	unread bool             // which key is before is not known yet
}

// run brings the key to the front of the queue.
func (a *attempt) run(ctx context.Context, wait bool) (v locker.Validity, err error) {
	if err = a.enter(ctx, wait); err != nil {
		return v, err
	}
	if err = a.wait(ctx); err != nil {
		return v, err
	}
	if v, err = a.h.s.fresh(ctx); err != nil {
		return v, err
	}
	if a.h.minHold > 0 {
		if err = a.h.keepFor(ctx); err != nil {
			return v, err
		}
	}
	return v, a.h.grant()
}

// way is what the transaction that puts a key asks for.
type way int

const (
	// unused: that there is no key of the queue. It is one comparison for etcd, and
	// the shortest of transactions.
	unused way = iota
	// free: that nobody holds or waits. There may be void keys, or raised tokens.
	free
	// crowded: nothing, if it is to wait. A comparison with a queue costs the one
	// thread that applies all writes time for each key that is there.
	crowded
)

// enter takes the first place, or, if it is to wait, the last.
func (a *attempt) enter(ctx context.Context, wait bool) error {
	h := a.h
	put := []clientv3.Op{clientv3.OpPut(h.key, h.value(), clientv3.WithLease(h.s.id))}
	for _, mark := range h.shadows {
		put = append(put, clientv3.OpPut(h.key+mark, h.shadowed(h.keeps(mark))))
	}
	notVoid := func() clientv3.Cmp {
		return clientv3.Compare(clientv3.CreateRevision(void(h.queue, h.owner)), "=", 0)
	}
	way := a.b.wayInto(h.queue)
	for {
		var cmps []clientv3.Cmp
		var orElse []clientv3.Op
		then := put
		if !wait {
			way = min(way, free)
			orElse = []clientv3.Op{clientv3.OpGet(h.queue, first(h.queue)...)}
		}
		switch way {
		case unused:
			cmps = []clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(h.queue).WithPrefix(), "=", 0)}
		case free:
			cmps = []clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(h.queue).WithRange(places(h.queue)), "=", 0), notVoid()}
			then = append(put[:len(put):len(put)], clientv3.OpGet(tokensKey(h.queue)))
		case crowded:
			cmps = []clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(h.key), "=", 0), notVoid()}
			orElse = []clientv3.Op{clientv3.OpGet(h.key)}
		}
		resp, err := a.commit(ctx, cmps, then, orElse)
		if err != nil {
			return err
		}
		if resp.Succeeded {
			a.entered(resp.Header.Revision)
			if way == free {
				if h.tokens, err = readTokens(resp.Responses[len(put)]); err == nil {
					a.learn(false)
				}
			}
			a.unread = way == crowded
			return err
		}
		var found *mvccpb.KeyValue
		if len(orElse) > 0 {
			found = front(resp.Responses[0].GetResponseRange().Kvs)
		}
		switch {
		case found != nil && string(found.Key) == h.key && string(found.Value) == h.value() && found.Lease == int64(h.s.id):
			a.entered(found.CreateRevision) // a repeated request: it keeps its place (R11)
			a.unread = true
			return nil
		case wait && way < crowded:
			way = crowded
			continue
		case way == unused && found == nil:
			way = free
			continue
		case wait, found == nil:
			return errTakenBack
		}
		if err := a.b.adopt(ctx, found); err != nil {
			return err
		}
		return locker.ErrHeld
	}
}

// commit sends a transaction that puts the key, and notes what is known of that.
func (a *attempt) commit(ctx context.Context, cmps []clientv3.Cmp, then, orElse []clientv3.Op) (*clientv3.TxnResponse, error) {
	c := &call{Context: ctx}
	resp, err := a.b.kv.Txn(c).If(cmps...).Then(then...).Else(orElse...).Commit()
	a.b.mu.Lock()
	defer a.b.mu.Unlock()
	a.h.copies = a.h.copies || c.underWay
	if c.underWay || err != nil && c.carriedOut {
		a.h.place = asked
	}
	return resp, err
}

// entered notes that the key has been put.
func (a *attempt) entered(revision int64) {
	a.b.mu.Lock()
	defer a.b.mu.Unlock()
	a.h.place, a.h.created = queued, revision
}

// wayInto returns how a queue was found lately.
func (b *Backend) wayInto(queue string) way {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ways[queue]
}

// maxWays bounds what is remembered of queues.
const maxWays = 4096

// learn remembers how the queue was found.
func (a *attempt) learn(others bool) {
	b := a.b
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.ways) >= maxWays {
		clear(b.ways)
	}
	switch {
	case others:
		b.ways[a.h.queue] = crowded
	case a.h.tokens.at != 0:
		b.ways[a.h.queue] = free
	default:
		delete(b.ways, a.h.queue)
	}
}

// behind notes the key before ours, and tells that there is one: it is etcd's
// answer, and not one that is still awaited.
func (a *attempt) behind(kv *mvccpb.KeyValue) {
	if a.unread {
		a.learn(kv != nil)
	}
	a.front, a.unread = kv, false
	if kv != nil && a.queued != nil {
		a.queued()
	}
}

// same is how many keys can have been put at one time: a key and its shadows.
const same = 3

// first and last are options for those of a queue who were there first or last.
func first(queue string) []clientv3.OpOption {
	return append(clientv3.WithFirstCreate(), clientv3.WithRange(places(queue)), clientv3.WithLimit(same))
}

func last(queue string) []clientv3.OpOption {
	return append(clientv3.WithLastCreate(), clientv3.WithRange(places(queue)), clientv3.WithLimit(same))
}

// errDeleted: the key of a waiter is gone, with its session or by hand.
var errDeleted = errors.New("its place in the queue is gone")

// look asks whether the key before is still there, at the given revision or
// later; at 0, as a majority knows it now. Only if it is not, the queue is read:
// that costs etcd time for each key in it. It fails if our own key is not there
// any more: an attempt that did not look could believe in a lock that it does not
// have.
func (a *attempt) look(ctx context.Context, revision int64) error {
	keys := []clientv3.Op{clientv3.OpGet(a.h.key), clientv3.OpGet(string(a.front.Key))}
	resp, err := a.ask(ctx, revision, keys...)
	if err != nil {
		return err
	}
	if before := resp.Responses[1].GetResponseRange().Kvs; len(before) > 0 && before[0].CreateRevision == a.front.CreateRevision {
		a.front = before[0]
		return nil
	}
	return a.read(ctx, revision)
}

// read finds the key before in the queue. Few do at a time: many readers of a
// long queue would take all of a member's processors.
func (a *attempt) read(ctx context.Context, revision int64) error {
	select {
	case a.b.readers <- struct{}{}:
		defer func() { <-a.b.readers }()
	case <-ctx.Done():
		return ctx.Err()
	}
	before := append(last(a.h.queue), clientv3.WithMaxCreateRev(a.h.created-1))
	resp, err := a.ask(ctx, revision, clientv3.OpGet(a.h.key), clientv3.OpGet(a.h.queue, before...), clientv3.OpGet(tokensKey(a.h.queue)))
	if err != nil {
		return err
	}
	if a.h.tokens, err = readTokens(resp.Responses[2]); err != nil {
		return err
	}
	a.behind(front(resp.Responses[1].GetResponseRange().Kvs))
	return nil
}

// ask makes requests of which the first is for our own key.
func (a *attempt) ask(ctx context.Context, revision int64, ops ...clientv3.Op) (resp *clientv3.TxnResponse, err error) {
	if revision > 0 {
		// Any member will do that has come so far, and most have.
		revision = max(revision, a.h.created)
		local := make([]clientv3.Op, len(ops))
		for i, op := range ops {
			clientv3.WithSerializable()(&op)
			local[i] = op
		}
		resp, err = a.b.kv.Txn(ctx).Then(local...).Commit()
	}
	if revision == 0 || err == nil && resp.Header.Revision < revision {
		resp, err = a.b.kv.Txn(ctx).Then(ops...).Commit()
	}
	if err != nil {
		return nil, err
	}
	mine := resp.Responses[0].GetResponseRange().Kvs
	if len(mine) == 0 || mine[0].CreateRevision != a.h.created {
		a.b.mu.Lock()
		defer a.b.mu.Unlock()
		if !a.h.copies && len(a.h.shadows) == 0 {
			a.h.place = nowhere
		}
		return nil, errDeleted
	}
	return resp, nil
}

// adopt begins to count the time for which a shadow keeps the lock whose key is
// gone: it puts it on a lease that nobody renews, and that no leader can end
// early therefore. It does nothing if kv is no such shadow.
//
// Its holder may believe in it for as long: a leader that was stopped for longer
// than a TTL revokes leases that its successor has kept alive.
func (b *Backend) adopt(ctx context.Context, kv *mvccpb.KeyValue) error {
	seconds, ok := orphaned(kv)
	if !ok {
		return nil
	}
	lease, err := b.leases.Grant(ctx, seconds)
	if err != nil {
		return err
	}
	key := string(kv.Key)
	resp, err := b.kv.Txn(ctx).
		If(clientv3.Compare(clientv3.ModRevision(key), "=", kv.ModRevision), clientv3.Compare(clientv3.CreateRevision(base(kv.Key)), "=", 0)).
		Then(clientv3.OpPut(key, string(kv.Value), clientv3.WithLease(lease.ID))).
		Else(clientv3.OpGet(key)).Commit()
	if err != nil {
		return notOfSession(err)
	}
	if !resp.Succeeded {
		now := resp.Responses[0].GetResponseRange().Kvs
		if len(now) == 0 || clientv3.LeaseID(now[0].Lease) != lease.ID { // not a repeated request (R11)
			_, _ = b.leases.Revoke(ctx, lease.ID) // another was faster; it ends by itself, too
		}
	}
	return nil
}

// notOfSession makes the error that a lease is gone one that may go away. It is
// for requests with a lease that was just granted: no session is what is gone.
func notOfSession(err error) error {
	if etcderr.LeaseGone(err) {
		return &noAnswerError{"a lease that was granted was over before it was used"}
	}
	return err
}
