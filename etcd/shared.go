package etcd

import (
	"context"
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/golockers/locker/driver"
)

// A sharer's key is in the queue like any other, and whoever wants the lock alone waits for it. Itself it has
// only those in its way that want the lock alone, and were there before it. No key can come before another
// later: who has nobody in the way once never will again.

// isShared reports whether the hold is a sharer's.
func (h *hold) isShared() bool { return strings.HasPrefix(h.key[len(h.queue):], sharedMark) }

// inTheWay is the end of the range with those for whom the hold waits if they were there before it.
func (h *hold) inTheWay() string {
	if h.isShared() {
		return alone(h.queue)
	}
	return places(h.queue)
}

var seed = maphash.MakeSeed()

// scattered returns which numbers a sharer of one client tries for its key: four times 0, four times one of
// the lowest two, then four, eight, and so on. Some fifty tries find a free one among thousands, not much
// above them, and a repeated request finds the same (R11).
func scattered(owner string) func(try int) int {
	draw := rand.New(rand.NewPCG(maphash.String(seed, owner), 0)) //nolint:gosec // nobody has to guess it
	return func(try int) int { return draw.IntN(1 << min(try/4, 30)) }
}

// counting asks how many keys and shadows of sharers a queue has.
func counting(queue string) []clientv3.Op {
	return []clientv3.Op{
		sharers(queue, clientv3.WithCountOnly()), sharersShadows(queue, clientv3.WithCountOnly()),
	}
}

// bounded refuses a sharer that has nobody in its way, and driver.MaxSharers who hold the lock before it.
// counts are the answers to counting, when it was granted the lock or later: those before it are all that
// hold.
//
// Where there are more shadows than keys, some are of the dead. They would pile up where nobody waits for
// them.
func (a *attempt) bounded(ctx context.Context, counts []*pb.ResponseOp) error {
	keys, shadows := counts[0].GetResponseRange().Count, counts[1].GetResponseRange().Count
	if shadows > keys {
		if err := a.b.sweep(ctx, a.h.queue); err != nil {
			return err
		}
	}
	if keys <= driver.MaxSharers {
		return nil
	}
	// Some came later.
	resp, err := a.b.pool.read(ctx, ordinary,
		sharers(a.h.queue, clientv3.WithKeysOnly(), clientv3.WithMaxCreateRev(a.h.created)))
	if err != nil {
		return err
	}
	upToIt := len(resp.Responses[0].GetResponseRange().Kvs)
	if upToIt <= driver.MaxSharers {
		return nil
	}
	if _, err := a.h.remove(ctx); err != nil {
		return err
	}
	name := unescape.Replace(strings.TrimSuffix(strings.TrimPrefix(a.h.queue, a.b.keys.locks()), "/"))
	return fmt.Errorf("%w: %d share %q, and no more can", driver.ErrRefused, upToIt-1, name)
}

// holders parts the places of a queue, in its order, into those that have the lock and those that wait for
// it, each by its front. What is left of one that waited in vain is no place: the next who waits removes it.
func holders(queue []*mvccpb.KeyValue) (have, wait []*mvccpb.KeyValue) {
	for place := range eachPlace(queue) {
		kv := front(place)
		if wasNeverGranted(kv) {
			continue
		}
		together := len(have) == 0 || isShared(string(have[0].Key)) && isShared(string(kv.Key))
		if len(wait) == 0 && together {
			have = append(have, kv)
		} else {
			wait = append(wait, kv)
		}
	}
	return have, wait
}
