package etcd

import (
	"context"
	"errors"
	"strconv"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/golockers/locker"
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

// attempt is one key on its way through a queue, on one session.
type attempt struct {
	b      *Backend
	h      *hold
	queued func() // told that others are before it; may be nil
	at     position
	before *mvccpb.KeyValue // the key before, if it is behind one
}

// position is where an attempt's key is:
//
//	outside ──► somewhere ──► behind ──► first
//	   │            └──────────────────────▲
//	   └───────────────────────────────────┘
type position int

const (
	outside   position = iota
	somewhere          // in the queue: which key is before it is not known yet
	behind             // another key: attempt.before
	first
)

// attempt asks for the lock on one session. What it may leave is in the Grant beside its error.
func (b *Backend) attempt(ctx context.Context, req locker.Request) (locker.Grant, error) {
	s, err := b.join(ctx, wholeSeconds(req.TTL))
	if err != nil {
		return locker.Grant{}, err
	}
	h := &hold{
		b: b, s: s, queue: b.keys.queue(req.Name),
		owner: req.Owner, label: req.Label, lost: req.Lost, minHold: req.MinHold,
	}
	switch {
	case b.opts.StrictExpiry:
		h.shadow = strict
	case req.MinHold > 0:
		h.shadow = kept
	}
	b.name(h, req.Shared)
	a := &attempt{b: b, h: h, queued: req.Queued}
	v, err := a.run(ctx, req.Wait)
	switch {
	case err == nil && req.Shared:
		return locker.Grant{Hold: h, Session: true, Validity: v}, nil
	case err == nil:
		return locker.Grant{Hold: h, Session: true, Validity: v, Token: h.tokens.Of(h.created)}, nil
	}
	if leaseGone(err) {
		s.become(gone)
		err = errGone
	}
	if errors.Is(err, errGone) {
		select { // its lease may have to be revoked, and etcd may be silent
		case <-s.ended:
		case <-ctx.Done():
		case <-time.After(b.opts.Timeout):
		}
	}
	b.mu.Lock()
	left := h.left(s.life == gone, h.shadow != without)
	b.mu.Unlock()
	if left {
		return locker.Grant{Hold: h, Session: true}, err // for the engine to take back (R7)
	}
	h.settle()
	return locker.Grant{}, err
}

// name gives h a key of this client's that nothing can be under way for. Etcd keeps deleted keys in its index
// until it is compacted, so they are used again.
func (b *Backend) name(h *hold, shared bool) {
	mark, number := "", func(try int) int { return try }
	if shared {
		mark, number = sharedMark, scattered(h.owner)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for try := 0; ; try++ {
		h.key = h.queue + mark + b.id + "." + strconv.Itoa(number(try))
		if user := b.inUse[h.key]; user == nil {
			b.inUse[h.key] = h
			return
		} else if user.owner == h.owner && user.s == h.s {
			return // a repeated request (R11)
		}
	}
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
	if a.h.shadow == kept {
		if err = a.h.keepShadow(ctx); err != nil {
			return v, err
		}
	}
	return v, a.h.grant()
}

// entry is a transaction that puts the key, and what it requires. One that is refused is followed by the
// next:
//
//	ifUnused ──► ifFree ──► (held)
//	    └──────────┴──────► asLast     of those who wait
type entry int

const (
	// ifUnused: the queue has no key at all. It is one comparison for etcd, and the shortest of transactions.
	ifUnused entry = iota
	// ifFree: nobody holds or waits. There may be void keys, or raised tokens. A sharer begins with it:
	// nobody holds or waits alone.
	ifFree
	// asLast: nothing; it is for those who wait. A comparison with a queue costs the one thread that applies
	// all writes time for each key that is there.
	asLast
)

// present is what the answer to an entry that was refused shows.
type present int

const (
	nobody  present = iota
	another         // a key that is not this attempt's
	itself          // the attempt's own key: the request was carried out before (R11)
)

// refused returns what follows an entry that was refused: another one, or an error; neither if the key is
// there.
func (e entry) refused(wait bool, shown present) (next entry, err error) {
	switch {
	case shown == itself:
		return e, nil
	case wait && e < asLast:
		return asLast, nil
	case e == ifUnused && shown == nobody:
		return ifFree, nil
	case wait, shown == nobody:
		return e, errTakenBack
	}
	return e, locker.ErrHeld
}

// errTakenBack: the void key of this attempt is there.
var errTakenBack = errors.New("the attempt was taken back before it arrived")

// enter takes the first place, or, if it is to wait, the last.
func (a *attempt) enter(ctx context.Context, wait bool) error {
	e := a.b.usualEntry(a.h.queue)
	if a.h.isShared() {
		e = ifFree
	}
	if !wait {
		e = min(e, ifFree)
	}
	for {
		resp, err := a.put(ctx, e, wait)
		switch {
		case err != nil:
			return err
		case resp.Succeeded:
			return a.entered(ctx, e, resp)
		}
		shown, dead := nobody, false
		for _, r := range resp.Responses {
			kvs := r.GetResponseRange().Kvs
			switch found := front(kvs); {
			case found == nil:
			case a.h.isAt(found):
				shown = itself
				a.inQueue(found.CreateRevision, somewhere)
			case shown == nobody:
				shown, dead = another, isDead(found) || hasShadow(kvs) && isShared(string(found.Key))
			}
		}
		next, err := e.refused(wait, shown)
		switch {
		case errors.Is(err, locker.ErrHeld) && dead:
			if err := a.b.sweep(ctx, a.h.queue); err != nil {
				return err
			}
			return locker.ErrHeld
		case err != nil, shown == itself:
			return err
		}
		e = next
	}
}

// put makes the transaction of an entry.
func (a *attempt) put(ctx context.Context, e entry, wait bool) (*clientv3.TxnResponse, error) {
	h := a.h
	then := []clientv3.Op{clientv3.OpPut(h.key, h.value(), h.s.onLease())}
	if h.shadow != without {
		then = append(then, clientv3.OpPut(shadowOf(h.key), h.shadowed()))
	}
	isAbsent := func(key string) clientv3.Cmp { return clientv3.Compare(clientv3.CreateRevision(key), "=", 0) }
	cmps := []clientv3.Cmp{isAbsent(h.queue), isAbsent(void(h.queue, h.owner))}
	var orElse []clientv3.Op
	if !wait {
		orElse = []clientv3.Op{clientv3.OpGet(h.queue, oldest(h.inTheWay())...)}
	}
	switch {
	case e == ifUnused:
		cmps = []clientv3.Cmp{cmps[0].WithPrefix()}
	case e == ifFree && h.isShared():
		cmps[0] = cmps[0].WithRange(alone(h.queue))
		cmps = append(cmps, isAbsent(h.key)) // which no other comparison sees
		then = append(then, counting(h.queue)...)
		if !wait {
			orElse = append(orElse, clientv3.OpGet(h.key))
		}
	case e == ifFree:
		cmps[0] = cmps[0].WithRange(places(h.queue))
		then = append(then, marks(h.queue))
	default:
		cmps[0] = isAbsent(h.key)
		orElse = []clientv3.Op{clientv3.OpGet(h.key)}
	}
	resp, f, err := a.b.pool.txn(ctx, ordinary, cmps, then, orElse)
	a.b.mu.Lock()
	defer a.b.mu.Unlock()
	h.sent(f, err)
	return resp, err
}

// entered notes what an entry that succeeded says.
func (a *attempt) entered(ctx context.Context, e entry, resp *clientv3.TxnResponse) (err error) {
	if e == asLast {
		a.inQueue(resp.Header.Revision, somewhere)
		return nil
	}
	a.inQueue(resp.Header.Revision, first)
	if e != ifFree {
		return nil
	}
	if a.h.isShared() {
		return a.bounded(ctx, resp.Responses[len(resp.Responses)-2:])
	}
	if a.h.tokens, err = readTokens(resp.Responses[len(resp.Responses)-1]); err == nil {
		a.remember(false)
	}
	return err
}

// inQueue notes that the key has been put.
func (a *attempt) inQueue(created int64, at position) {
	a.at = at
	a.b.mu.Lock()
	defer a.b.mu.Unlock()
	a.h.found(created)
}

// usualEntry returns the entry that queue was last found to need.
func (b *Backend) usualEntry(queue string) entry {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.entries[queue]
}

// maxEntries bounds what is remembered of queues.
const maxEntries = 4096

// remember notes which entry the queue needs.
func (a *attempt) remember(contended bool) {
	b := a.b
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.entries) >= maxEntries {
		clear(b.entries)
	}
	switch {
	case contended:
		b.entries[a.h.queue] = asLast
	case a.h.tokens.marked:
		b.entries[a.h.queue] = ifFree
	default:
		delete(b.entries, a.h.queue)
	}
}
