package etcd

import (
	"context"
	"errors"
	"strconv"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/refusal"
)

// sessions is how many an attempt is made on, one after the other, if they expire.
const sessions = 3

// Acquire implements [driver.Backend]. With req.Wait it waits in the queue.
func (b *Backend) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	if err := ctx.Err(); err != nil {
		return driver.Grant{}, b.failure(ctx, err)
	}
	for n := 1; ; n++ {
		grant, err := b.attempt(ctx, req)
		switch {
		case err == nil:
			return grant, nil
		case errors.Is(err, errGone) && grant.Hold == nil && n < sessions:
			continue // nothing can come of it, and what may be left is not taken over
		}
		return refusal.Answer(grant, b.failure(ctx, err))
	}
}

// attempt is one key on its way through a queue, on one session.
type attempt struct {
	b      *Backend
	h      *hold
	queued func() // told that others are before it; may be nil
	// follows: this client has a key in the queue, of a holder or waiter, who is alone. It may not be free then.
	follows bool
	at      position
	before  *mvccpb.KeyValue // the key before, if it is behind one
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
func (b *Backend) attempt(ctx context.Context, req driver.Request) (driver.Grant, error) {
	s, err := b.join(ctx, wholeSeconds(req.TTL))
	if err != nil {
		return driver.Grant{}, err
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
	a := &attempt{b: b, h: h, queued: req.Queued, follows: b.name(h, req.Shared)}
	v, err := a.run(ctx, req.Wait)
	switch {
	case err == nil && req.Shared:
		return driver.Grant{Hold: h, Session: true, Validity: v}, nil
	case err == nil:
		return driver.Grant{Hold: h, Session: true, Validity: v, Token: h.tokens.Of(h.created)}, nil
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
		return driver.Grant{Hold: h, Session: true}, err // for the engine to take back (R7)
	}
	h.settle()
	return driver.Grant{}, err
}

// name gives h a key of this client's that nothing can be under way for. Etcd keeps deleted keys in its index
// until it is compacted, so they are used again. It reports whether one of the first two was in use.
func (b *Backend) name(h *hold, shared bool) (follows bool) {
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
			return !shared && (try > 0 || b.inUse[h.queue+b.id+".1"] != nil)
		} else if user.owner == h.owner && user.s == h.s {
			return false // a repeated request (R11)
		}
	}
}

// run brings the key to the front of the queue.
func (a *attempt) run(ctx context.Context, wait bool) (v driver.Validity, err error) {
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

// errTakenBack: the void key of this attempt is there.
var errTakenBack = errors.New("the attempt was taken back before it arrived")

// enter takes the first place, or, if it is to wait, the last.
func (a *attempt) enter(ctx context.Context, wait bool) error {
	for last := wait && a.follows; ; last = true {
		resp, err := a.put(ctx, last, wait)
		if err != nil {
			return err
		}
		if resp.Succeeded {
			return a.entered(ctx, last, resp)
		}
		held, dead := false, false
		for _, r := range resp.Responses {
			kvs := r.GetResponseRange().Kvs
			switch found := front(kvs); {
			case found == nil:
			case a.h.isAt(found): // the request was carried out before (R11)
				a.inQueue(found.CreateRevision, somewhere)
				return nil
			case !held:
				held, dead = true, isDead(found) || hasShadow(kvs) && isShared(string(found.Key))
			}
		}
		switch {
		case wait && !last:
			continue
		case last, !held: // a key of that name which a copy has put is as good as the void key
			return errTakenBack
		case dead:
			if err := a.b.sweep(ctx, a.h.queue); err != nil {
				return err
			}
		}
		return driver.ErrHeld
	}
}

// put makes a transaction that puts the key if nobody holds or waits, of a sharer: nobody alone; or, last, behind
// all others: a comparison with a queue costs the one thread that applies all writes time for each key that is there.
func (a *attempt) put(ctx context.Context, last, wait bool) (*clientv3.TxnResponse, error) {
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
	case last:
		cmps[0] = isAbsent(h.key)
		orElse = []clientv3.Op{clientv3.OpGet(h.key)}
	case h.isShared():
		cmps[0] = cmps[0].WithRange(alone(h.queue))
		cmps = append(cmps, isAbsent(h.key)) // which no other comparison sees
		then = append(then, counting(h.queue)...)
		if !wait {
			orElse = append(orElse, clientv3.OpGet(h.key))
		}
	default:
		cmps[0] = cmps[0].WithRange(places(h.queue))
		then = append(then, clientv3.OpGet(tokensKey(h.queue)))
	}
	resp, f, err := a.b.pool.txn(ctx, ordinary, cmps, then, orElse)
	a.b.mu.Lock()
	defer a.b.mu.Unlock()
	h.sent(f, err)
	return resp, err
}

// entered notes what a transaction says that has put the key.
func (a *attempt) entered(ctx context.Context, last bool, resp *clientv3.TxnResponse) (err error) {
	if last {
		a.inQueue(resp.Header.Revision, somewhere)
		return nil
	}
	a.inQueue(resp.Header.Revision, first)
	if a.h.isShared() {
		return a.bounded(ctx, resp.Responses[len(resp.Responses)-2:])
	}
	a.h.tokens, err = readTokens(resp.Responses[len(resp.Responses)-1])
	return err
}

// inQueue notes that the key has been put.
func (a *attempt) inQueue(created int64, at position) {
	a.at = at
	a.b.mu.Lock()
	defer a.b.mu.Unlock()
	a.h.found(created)
}
