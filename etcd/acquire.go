package etcd

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/clock"
	"github.com/golockers/locker/internal/queue"
	"github.com/golockers/locker/internal/refusal"
	"github.com/golockers/locker/internal/session"
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
		case errors.Is(err, session.ErrGone) && grant.Hold == nil && n < sessions:
			continue // nothing can come of it, and what may be left is not taken over
		}
		return refusal.Answer(grant, b.failure(ctx, err))
	}
}

// attempt asks for the lock on one session. What it may leave is in the Grant beside its error.
func (b *Backend) attempt(ctx context.Context, req driver.Request) (driver.Grant, error) {
	l, err := b.join(ctx, wholeSeconds(req.TTL))
	if err != nil {
		return driver.Grant{}, err
	}
	h := &hold{
		b: b, l: l, queue: b.keys.queue(req.Name), shared: req.Shared,
		owner: req.Owner, label: req.Label, lost: req.Lost, minHold: req.MinHold,
	}
	if h.minHold > 0 {
		h.turn = make(chan struct{}, 1)
	}
	a := &attempt{h: h, follows: b.name(h)}
	a.behind = h.key
	v, err := a.run(ctx, req)
	switch {
	case err == nil && req.Shared:
		return driver.Grant{Hold: h, Validity: v}, nil
	case err == nil:
		return driver.Grant{Hold: h, Validity: v, Token: h.tokens.Of(h.created)}, nil
	}
	if leaseGone(err) {
		l.Ended()
		err = session.ErrGone
	}
	if errors.Is(err, session.ErrGone) {
		select { // its lease may have to be revoked, and etcd may be silent
		case <-l.Gone():
		case <-ctx.Done():
		case <-time.After(b.opts.Timeout):
		}
	}
	b.mu.Lock()
	left := h.left(l.IsGone())
	b.mu.Unlock()
	if left {
		return driver.Grant{Hold: h}, err // for the engine to take back (R7)
	}
	h.become(settled)
	return driver.Grant{}, err
}

// name gives h a key of this client's that nothing can be under way for. Etcd keeps deleted keys in its index
// until it is compacted, so they are used again, but for that of a MinHold: its floor may be there for longer
// than anybody here knows. It reports whether this client has another place in the queue, which may not be
// free then.
//
// A request that is made again, on the same session, has the key that it had (R11). It need not be the first one that
// nobody uses: another attempt had a lower number when this one began, and has left since. With that number, the key
// of the request would be in its own way. Asked for in the other kind, or with another kind of MinHold, it is another
// request.
//
// A sharer draws numbers: four times 0, four times one of the lowest two, then four, eight, and so on. Some fifty
// tries find a free one among thousands, not much above them.
func (b *Backend) name(h *hold) (follows bool) {
	mark, once, number := "", "", func(try int) int { return try }
	if h.minHold > 0 {
		once = "." + escape.Replace(h.owner)
	}
	if h.shared {
		mark, number = sharedMark, func(try int) int { return rand.IntN(1 << min(try/4, 30)) } //nolint:gosec // no secret
	}
	h.asked = h.queue + mark + once + voidMark + strconv.FormatInt(h.l.id, 16) + voidMark + h.owner
	b.mu.Lock()
	defer b.mu.Unlock()
	if before := b.inUse[h.asked]; before != nil {
		h.key, h.again, before.again = before.key, before.again, h
		return false
	}
	b.inUse[h.asked] = h
	for try := 0; ; try++ {
		h.key = h.queue + mark + b.id + once + "." + strconv.Itoa(number(try))
		if b.inUse[h.key] == nil {
			b.inUse[h.key] = h
			return !h.shared && (try > 0 || b.inUse[h.queue+b.id+".1"] != nil)
		}
	}
}

// attempt is one key on its way through a queue.
type attempt struct {
	h        *hold
	follows  bool
	revision int64  // as of which a watch has told that the way may be free; 0: none has
	behind   string // the key that was in its way last
}

var _ queue.Place[mvccpb.KeyValue] = (*attempt)(nil)

// run brings the key to the front of the queue.
func (a *attempt) run(ctx context.Context, req driver.Request) (v driver.Validity, err error) {
	first, ahead, err := a.enter(ctx, req.Wait)
	if err != nil {
		return v, err
	}
	if !first {
		queued := req.Queued
		if queued == nil {
			queued = func() {}
		}
		if err = queue.Wait(ctx, a.h.l.Session, a, ahead, queued); err != nil {
			return v, err
		}
	}
	if v, err = a.h.l.Validity(); err != nil {
		a.h.l.Hurry()
		limited, cancel := context.WithTimeout(ctx, a.h.b.opts.Timeout)
		defer cancel()
		if v, err = a.h.l.Fresh(limited); err != nil {
			return v, err
		}
	}
	return v, a.h.grant(ctx)
}

// errTakenBack: the void key of this attempt is there.
var errTakenBack = errors.New("the attempt was taken back before it arrived")

// enter takes the first place, or, if it is to wait, the last. If it is not first, ahead is what is in its
// way; nil: that is not known yet.
//
// A comparison with a queue costs the one thread that applies all writes time for each key that is there, so
// it is made only where the name may be free. Behind others, the transaction looks for who is in the way
// before it puts the key.
func (a *attempt) enter(ctx context.Context, wait bool) (first bool, ahead *mvccpb.KeyValue, err error) {
	h := a.h
	for last := wait && a.follows; ; last = true {
		resp, err := a.put(ctx, last, wait)
		switch {
		case err != nil:
			return false, nil, err
		case resp.Succeeded && last:
			a.inQueue(resp.Header.Revision)
			ahead, err = a.ahead(ctx, resp.Responses)
			return ahead == nil, ahead, err
		case resp.Succeeded:
			a.inQueue(resp.Header.Revision)
			return true, nil, a.learn(ctx, resp.Responses)
		}
		for _, kv := range resp.Responses[0].GetResponseRange().Kvs {
			if string(kv.Value) == h.value() && kv.Lease == h.l.id {
				a.inQueue(kv.CreateRevision)
				return false, nil, nil // the request was carried out before (R11)
			}
		}
		if wait && !last {
			continue
		}
		if last || !isHeld(resp) { // a key of that name which a copy has put is as good as the void key
			return false, nil, errTakenBack
		}
		if err := a.discover(ctx, resp); err != nil {
			return false, nil, err
		}
		return false, nil, driver.ErrHeld
	}
}

// put makes the transaction of enter.
func (a *attempt) put(ctx context.Context, last, wait bool) (*clientv3.TxnResponse, error) {
	h := a.h
	cmps := []clientv3.Cmp{isAbsent(void(h.queue, h.owner))}
	orElse := []clientv3.Op{clientv3.OpGet(h.key)}
	then := a.needs()
	switch {
	case last:
		cmps = append(cmps, isAbsent(h.key))
		then = append(a.looks(), then...)
	case h.shared:
		cmps = append(cmps, isAbsent(h.key), places(h.queue, true).isEmpty(), floors(h.queue, true).isEmpty())
	default:
		cmps = append(cmps, everything(h.queue).isEmpty())
	}
	if !last && !wait {
		oldest := append(clientv3.WithFirstCreate(), clientv3.WithKeysOnly())
		orElse = append(orElse,
			floors(h.queue, h.shared).get(clientv3.WithLimit(1)), places(h.queue, h.shared).get(oldest...))
	}
	then = append(then, clientv3.OpPut(h.key, h.value(), h.l.with())) // after the looks
	resp, f, err := h.b.pool.txn(ctx, ordinary, cmps, then, orElse)
	h.b.mu.Lock()
	defer h.b.mu.Unlock()
	h.sent(f, err)
	return resp, err
}

// inQueue notes that the key has been put.
func (a *attempt) inQueue(created int64) {
	a.h.b.mu.Lock()
	defer a.h.b.mu.Unlock()
	a.h.found(created)
}

// isHeld reports whether somebody was in the way of a transaction that was to take a free name.
func isHeld(resp *clientv3.TxnResponse) bool {
	floors, places := resp.Responses[1].GetResponseRange().Kvs, resp.Responses[2].GetResponseRange().Kvs
	return len(floors)+len(places) > 0
}

// discover has the time of dead holders begin for one that is refused: it found a floor on no lease that may
// not be that of the oldest place, which lives, or that of a sharer, behind which such floors may stand.
func (a *attempt) discover(ctx context.Context, resp *clientv3.TxnResponse) error {
	for _, floor := range resp.Responses[1].GetResponseRange().Kvs {
		oldest := ""
		for _, kv := range resp.Responses[2].GetResponseRange().Kvs {
			oldest = string(kv.Key)
		}
		if isShared(floor.Key) || floor.Lease == 0 && placeOf(floor.Key) != oldest {
			return a.h.b.sweep(ctx, a.h.queue)
		}
	}
	return nil
}

// looks are for what is in the way: the last place of those that came before, or, if there is none, a floor
// that one has left. All floors are in the way: nobody was granted the name behind one that waits.
func (a *attempt) looks() []clientv3.Op {
	newest := clientv3.WithLastCreate()
	if a.h.created > 0 {
		newest = append(newest, clientv3.WithMaxCreateRev(a.h.created-1))
	}
	return []clientv3.Op{
		places(a.h.queue, a.h.shared).get(newest...), floors(a.h.queue, a.h.shared).get(clientv3.WithLimit(1)),
	}
}

// needs are for what a holder has to know.
func (a *attempt) needs() []clientv3.Op {
	if count := clientv3.WithCountOnly(); a.h.shared {
		return []clientv3.Op{sharers(a.h.queue).get(count), sharersFloors(a.h.queue).get(count)}
	}
	return []clientv3.Op{clientv3.OpGet(tokensKey(a.h.queue))}
}

// ahead says what the answers to looks have found in the way. If that is nothing, it learns from those to
// needs, which come after them.
func (a *attempt) ahead(ctx context.Context, found []*pb.ResponseOp) (ahead *mvccpb.KeyValue, err error) {
	for _, r := range found[:2] {
		for _, kv := range r.GetResponseRange().Kvs {
			if placeOf(kv.Key) != a.h.key { // else it is the floor that a copy of this request has put (R11)
				return kv, nil
			}
		}
	}
	return nil, a.learn(ctx, found[2:])
}

// learn reads the answers to needs, which came when nothing was in the way, or later: whoever held before
// cannot raise the tokens any more, and the sharers that came before it are all that hold.
//
// A sharer is refused if driver.MaxSharers hold the lock before it. Where there are more floors than places,
// some are those of the dead: they would pile up where nobody waits for them.
func (a *attempt) learn(ctx context.Context, found []*pb.ResponseOp) (err error) {
	h := a.h
	if !h.shared {
		h.tokens, err = readTokens(found[0])
		return err
	}
	places, floors := found[0].GetResponseRange().Count, found[1].GetResponseRange().Count
	if floors > places {
		if err := h.b.sweep(ctx, h.queue); err != nil {
			return err
		}
	}
	if places < driver.MaxSharers {
		return nil
	}
	// Some came later.
	resp, err := h.b.pool.read(ctx, ordinary,
		sharers(h.queue).get(clientv3.WithKeysOnly(), clientv3.WithMaxCreateRev(h.created-1)))
	if err != nil {
		return err
	}
	before := len(resp.Responses[0].GetResponseRange().Kvs)
	if before < driver.MaxSharers {
		return nil
	}
	if _, err := h.end(ctx, 0); err != nil {
		return err
	}
	name := unescape.Replace(strings.TrimSuffix(strings.TrimPrefix(h.queue, h.b.keys.locks()), "/"))
	return fmt.Errorf("%w: %d share %q, and no more can", driver.ErrRefused, before, name)
}

var (
	// errWatchOver: there is no watch any more.
	errWatchOver = errors.New("the watch ended")
	// errDeleted: the key of a waiter is gone, with its session or by hand.
	errDeleted = errors.New("its place in the queue is gone")
)

// Lost implements [queue.Place].
func (a *attempt) Lost(err error) bool {
	return errors.Is(err, errDeleted) || errors.Is(err, driver.ErrRefused) || outcomeOf(err) == refused
}

// Ahead implements [queue.Place].
func (a *attempt) Ahead(ctx context.Context) (*mvccpb.KeyValue, error) {
	strict, _ := floorsOf(a.behind)
	resp, err := a.ask(ctx, readers, slices.Concat([]clientv3.Op{clientv3.OpGet(strict)}, a.looks(), a.needs())...)
	if err != nil {
		return nil, err
	}
	for _, floor := range resp.Responses[1].GetResponseRange().Kvs {
		if floor.Lease == 0 {
			// It has died, and its time begins now, whoever else is in the way.
			if err := a.h.b.sweep(ctx, a.h.queue); err != nil {
				return nil, err
			}
		}
	}
	return a.ahead(ctx, resp.Responses[2:])
}

// ask makes requests behind one for our own key: an attempt that did not look could believe in a lock that it
// does not have.
func (a *attempt) ask(ctx context.Context, in line, gets ...clientv3.Op) (resp *clientv3.TxnResponse, err error) {
	h := a.h
	gets = append([]clientv3.Op{clientv3.OpGet(h.key, clientv3.WithKeysOnly())}, gets...)
	if a.revision > 0 {
		// Any member will do that has come so far, and most have.
		local := make([]clientv3.Op, len(gets))
		for i, op := range gets {
			clientv3.WithSerializable()(&op)
			local[i] = op
		}
		resp, err = h.b.pool.read(ctx, in, local...)
	}
	if a.revision == 0 || err == nil && resp.Header.Revision < max(a.revision, h.created) {
		resp, err = h.b.pool.read(ctx, in, gets...)
	}
	if a.revision = 0; err != nil {
		return nil, err
	}
	if createRevision(resp.Responses[0]) != h.created {
		h.b.mu.Lock()
		defer h.b.mu.Unlock()
		h.missing()
		return nil, errDeleted
	}
	return resp, nil
}

// Pauses after a watch that failed, and the least time after which waiters look again, in requests that many
// share: a watch may have missed it (R14).
const (
	firstRewatch = 20 * time.Millisecond
	lastRewatch  = time.Second
	rareLook     = 20 * time.Second
)

// Await implements [queue.Place]. It looks when etcd has confirmed the watch, and when it has failed to.
func (a *attempt) Await(ctx context.Context, before *mvccpb.KeyValue) error {
	l, key := a.h.l, string(before.Key)
	a.behind = placeOf(before.Key)
	if isFloor(before.Key) && (before.Lease == 0 || isShared(before.Key)) { // more may stand behind a sharer's
		if err := a.h.b.sweep(ctx, a.h.queue); err != nil {
			return err
		}
	}
	ticks := time.NewTicker(clock.Jitter(max(l.ttl, rareLook)))
	defer ticks.Stop()
	told, stop := a.h.b.watches.deletion(key)
	defer stop()
	for {
		select {
		case n := <-told:
			if a.revision = n.revision; n.is == deleted {
				return nil
			}
			resp, err := a.ask(ctx, ordinary, clientv3.OpGet(key, clientv3.WithKeysOnly()))
			switch {
			case err != nil, createRevision(resp.Responses[1]) != before.CreateRevision:
				return err
			case n.is == failed:
				return errWatchOver
			}
		case <-ticks.C:
			if l.isMissing(ctx, a.h.key, a.h.created) || l.isMissing(ctx, key, before.CreateRevision) {
				return nil
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
