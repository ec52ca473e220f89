package etcd

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/golockers/locker/internal/clock"
)

// A floor keeps others from a name whose holder's place is gone. It is put with the grant, never by one that
// waits, so that the dead who never held are in nobody's way. It says which place it is for, and is put only
// while that is there: a request that is late cannot put it after the release. The owner alone does not say which:
// if somebody deletes the place by hand, a late copy of the request that put it puts it once more, behind others. What
// each kind of floor is for, and how it ends, is in the package documentation.

// keepSpare is how much longer than a MinHold its floor lasts, and so how long the grant may take.
const keepSpare = time.Second

// putFloors puts the floors of a hold that is about to be granted. They are there before it is, or it is
// given back.
func (h *hold) putFloors(ctx context.Context) error {
	began := time.Now()
	strict, _ := floorsOf(h.key)
	lease, keep := newLease(), h.minHold+keepSpare
	h.b.mu.Lock()
	h.floors = true
	if h.minHold > 0 {
		h.keeps = lease
	}
	floored := h.floored()
	h.b.mu.Unlock()
	var put []clientv3.Op
	if h.b.opts.StrictExpiry {
		put = append(put, clientv3.OpPut(strict, floored))
	}
	if h.minHold > 0 {
		floor, err := h.keepFor(ctx, lease, keep+keep/100, floored) // for the clocks of leader and holder
		if err != nil {
			return err
		}
		put = append(put, floor)
	}
	resp, _, err := h.b.pool.txn(ctx, ordinary, []clientv3.Cmp{is(h.key, h.created)}, put, nil)
	switch took := clock.Elapsed(began, time.Now()); {
	case err != nil:
		return notOfSession(err)
	case !resp.Succeeded:
		return errDeleted
	case h.minHold > 0 && took > keepSpare:
		return &noAnswerError{fmt.Sprintf("MinHold was granted, but the answer took %v", took)}
	}
	h.b.mu.Lock()
	defer h.b.mu.Unlock()
	h.covered = began.Add(keep)
	return nil
}

// keepFor has etcd grant a lease that the floor of a MinHold is to be on, and returns the request that puts it there.
func (h *hold) keepFor(ctx context.Context, lease int64, d time.Duration, floored string) (put clientv3.Op, err error) {
	_, err = h.b.pool.grantLease(ctx, lease, wholeSeconds(d))
	_, minHold := floorsOf(h.key)
	return clientv3.OpPut(minHold, floored, clientv3.WithLease(clientv3.LeaseID(lease))), err
}

// cover returns what a release has to put, with the place there, so that the floor of a MinHold lasts for keep from
// now on, and the new lease of that; 0 if it does already. It does, unless the client stood still after etcd had put
// the floor, before its caller was told: MinHold counts from then. It is put with the deletion of the place: a late
// copy of the request that put it first finds either the place and is overwritten, or none. What was never granted, or
// is kept already, gets no other. keep has 1 % in it for the clocks of leader and holder, as the lease has that is there,
// and h.covered has not.
func (h *hold) cover(ctx context.Context, keep time.Duration) (lease int64, put clientv3.Op, err error) {
	h.b.mu.Lock()
	needed := keep > 0 && h.stage == granted && clock.Left(h.covered, time.Now()) < keep-keep/101
	h.floors = h.floors || needed
	floored := h.floored()
	h.b.mu.Unlock()
	if !needed {
		return 0, put, nil
	}
	lease = newLease()
	put, err = h.keepFor(ctx, lease, keep, floored)
	return lease, put, err
}

// newLease returns an ID for a lease that nobody renews: a copy of the request makes no other, and
// whoever gets no answer can revoke it. A copy that is late makes it once more when it is gone. What puts a key
// on it compares what is there: if that is late too, a floor stands again whose MinHold had ended, but only as long
// as its holder does. It goes with a release, and outlasts a holder that dies by no more than MinHold.
func newLease() int64 { return 1 + rand.Int64N(math.MaxInt64) } //nolint:gosec // it is no secret

// sweep begins to count the time of those of a queue's floors that are on no lease and whose places are gone.
func (b *Backend) sweep(ctx context.Context, queue string) error {
	resp, err := b.pool.read(ctx, readers,
		floors(queue, false).get(), places(queue, false).get(clientv3.WithKeysOnly()))
	if err != nil {
		return err
	}
	there := map[string]bool{}
	for _, kv := range resp.Responses[1].GetResponseRange().Kvs {
		there[string(kv.Key)] = true
	}
	dead := map[int64][]*mvccpb.KeyValue{} // by their seconds
	for _, kv := range resp.Responses[0].GetResponseRange().Kvs {
		if kv.Lease == 0 && !there[placeOf(kv.Key)] {
			seconds, _ := numbers(kv)
			dead[seconds] = append(dead[seconds], kv)
		}
	}
	for seconds, floors := range dead {
		if err := b.count(ctx, floors, seconds); err != nil {
			return err
		}
	}
	return nil
}

// count puts floors on a lease. It compares that they are as they were: a request that is late, or sent
// twice, must not find those of the next holder. The lease ends by itself, also if another client was faster.
func (b *Backend) count(ctx context.Context, floors []*mvccpb.KeyValue, seconds int64) error {
	lease := newLease()
	if _, err := b.pool.grantLease(ctx, lease, max(seconds, 1)); err != nil {
		return err
	}
	var ops []clientv3.Op
	for _, kv := range floors {
		key := string(kv.Key)
		unchanged := []clientv3.Cmp{
			isAbsent(placeOf(kv.Key)), clientv3.Compare(clientv3.ModRevision(key), "=", kv.ModRevision),
		}
		put := clientv3.OpPut(key, string(kv.Value), clientv3.WithLease(clientv3.LeaseID(lease)))
		ops = append(ops, clientv3.OpTxn(unchanged, []clientv3.Op{put}, nil))
	}
	for chunk := range slices.Chunk(ops, keysAtOnce) {
		if _, _, err := b.pool.txn(ctx, ordinary, nil, chunk, nil); err != nil {
			return notOfSession(err)
		}
	}
	return nil
}

// notOfSession makes the error that a lease is gone one that may go away. It is for requests with a lease
// that was just granted: no session is what is gone.
func notOfSession(err error) error {
	if leaseGone(err) {
		return &noAnswerError{"a lease that was granted was over before it was used"}
	}
	return err
}

// uncover deletes the floors of StrictExpiry of those who held when Close notified them: nobody believes in
// them any more. It does so only where the revocation of their session was answered: a place that is still
// there and expires later would leave nothing in the way of the next. What fails is found by the next who
// asks for the name, and waited out. A MinHold stays.
func (b *Backend) uncover() {
	if !b.opts.StrictExpiry {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), revokeTimeout)
	defer cancel()
	var ops []clientv3.Op
	b.mu.Lock()
	for key, h := range b.inUse {
		if key == h.key && h.stage == granted && h.l.IsGone() {
			strict, _ := floorsOf(h.key)
			ops = append(ops, ifIs(strict, h.floored(), clientv3.OpDelete(strict)))
		}
	}
	b.mu.Unlock()
	for chunk := range slices.Chunk(ops, keysAtOnce) {
		_, _, _ = b.pool.txn(ctx, urgent, nil, chunk, nil)
	}
}
