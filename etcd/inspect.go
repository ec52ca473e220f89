package etcd

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/raised"
)

// listPage is how many keys List reads at a time.
const listPage = 1000

// Inspect implements [driver.Operator].
func (b *Backend) Inspect(ctx context.Context, name string) (driver.State, error) {
	queue, tokens, err := b.queue(ctx, name)
	if err != nil {
		return driver.State{Name: name}, b.failure(ctx, err)
	}
	st := state(name, queue, tokens)
	have, _ := holders(queue)
	left := map[int64]int64{} // of leases
	for place := range eachPlace(queue) {
		if len(have) == 0 || place[0].CreateRevision > have[len(have)-1].CreateRevision {
			break
		}
		var lasts, then int64 // the shadow of StrictExpiry is counted when the lease is over
		for _, kv := range place {
			if kv.Lease == 0 {
				then = seconds(kv)
			} else if _, asked := left[kv.Lease]; !asked {
				if left[kv.Lease], err = b.left(ctx, kv.Lease); err != nil {
					return driver.State{}, b.failure(ctx, err)
				}
			}
			lasts = max(lasts, left[kv.Lease])
		}
		st.Remaining = max(st.Remaining, time.Duration(lasts+then)*time.Second)
	}
	return st, nil
}

// left is how many seconds a lease lasts; -1: it is gone. After a change of the leader, it can be said to last
// longer than was granted.
func (b *Backend) left(ctx context.Context, lease int64) (int64, error) {
	resp := new(pb.LeaseTimeToLiveResponse)
	_, err := b.pool.invoke(ctx, ordinary, "Lease/LeaseTimeToLive", &pb.LeaseTimeToLiveRequest{ID: lease}, resp)
	if leaseGone(err) {
		return -1, nil
	}
	return min(resp.TTL, resp.GrantedTTL), err
}

// queue returns the keys of those who hold or wait for name, in their order, and
// what is added to their revisions.
func (b *Backend) queue(ctx context.Context, name string) ([]*mvccpb.KeyValue, raised.Tokens, error) {
	queue := b.keys.queue(name)
	resp, err := b.pool.read(ctx, ordinary,
		clientv3.OpGet(queue, inOrder(queue)...), clientv3.OpGet(tokensKey(queue)))
	if err != nil {
		return nil, raised.Tokens{}, err
	}
	tokens, err := readTokens(resp.Responses[1])
	return resp.Responses[0].GetResponseRange().Kvs, tokens.Tokens, err
}

// maxWaiting is how many places of the queue State.Waiting covers, and State.Sharing.
const maxWaiting = 16

// state is what the keys of one queue say, which it puts in their order.
func state(name string, queue []*mvccpb.KeyValue, tokens raised.Tokens) driver.State {
	slices.SortStableFunc(queue, func(a, b *mvccpb.KeyValue) int {
		return cmp.Compare(a.CreateRevision, b.CreateRevision)
	})
	have, wait := holders(queue)
	if len(have) == 0 {
		return driver.State{Name: name}
	}
	st := driver.State{
		Name: name, Held: true, Label: label(have[0]), Waiters: len(wait), Waiting: labels(wait),
		Holder: fmt.Sprintf(holderForm, have[0].CreateRevision, have[len(have)-1].CreateRevision),
	}
	if isShared(string(have[0].Key)) {
		st.Sharers, st.Sharing = len(have), labels(have)
	} else {
		st.Token = tokens.Of(have[0].CreateRevision)
	}
	return st
}

// labels are those of the first places, each once.
func labels(places []*mvccpb.KeyValue) (all []string) {
	for _, kv := range places[:min(len(places), maxWaiting)] {
		if l := label(kv); !slices.Contains(all, l) {
			all = append(all, l)
		}
	}
	return all
}

// List implements [driver.Operator].
func (b *Backend) List(ctx context.Context, prefix string) iter.Seq2[driver.State, error] {
	return func(yield func(driver.State, error) bool) {
		from := b.keys.locks() + escape.Replace(prefix)
		end := clientv3.GetPrefixRangeEnd(from)
		var name string
		var queue []*mvccpb.KeyValue
		var tokens raised.Tokens
		tell := func() bool {
			st := state(unescape.Replace(name), queue, tokens)
			return !st.Held || yield(st, nil)
		}
		for {
			resp, err := b.pool.read(ctx, ordinary,
				clientv3.OpGet(from, clientv3.WithRange(end), clientv3.WithLimit(listPage)))
			if err != nil {
				yield(driver.State{}, b.failure(ctx, err))
				return
			}
			page := resp.Responses[0].GetResponseRange()
			for _, kv := range page.Kvs {
				of, place, _ := strings.Cut(strings.TrimPrefix(string(kv.Key), b.keys.locks()), "/")
				if of != name {
					if !tell() {
						return
					}
					name, queue, tokens = of, nil, raised.Tokens{}
				}
				if string(kv.Key) == tokensKey(b.keys.locks()+of+"/") {
					tokens, _ = raised.Parse(string(kv.Value))
				} else if !strings.HasPrefix(place, voidMark) {
					queue = append(queue, kv)
				}
				from = string(kv.Key) + "\x00"
			}
			if !page.More {
				tell()
				return
			}
		}
	}
}

// holderForm is that of State.Holder: the create revisions of the first and the last that have the lock.
const holderForm = "etcd %d-%d"

// Break implements [driver.Operator]: it takes the lock from the holder that State.Holder names, or from all that
// share it with one who did then. A copy of it finds others, or nobody. It deletes shadows, too: the next one is let
// in at once, whatever those before believe. The oldest sharers go last: as long as one is there, they are the same.
func (b *Backend) Break(ctx context.Context, st driver.State) error {
	var first, last int64
	_, _ = fmt.Sscanf(st.Holder, holderForm, &first, &last)
	if st.Holder != "" && st.Holder != fmt.Sprintf(holderForm, first, last) {
		return fmt.Errorf("%w: %q is no Holder of this backend", driver.ErrInvalid, st.Holder)
	}
	queue, _, err := b.queue(ctx, st.Name)
	if err != nil {
		return b.failure(ctx, err)
	}
	have, _ := holders(queue)
	if len(have) == 0 || have[0].CreateRevision < first || have[0].CreateRevision > last ||
		first != last && !isShared(string(have[0].Key)) {
		return nil
	}
	slices.Reverse(have)
	for chunk := range slices.Chunk(have, keysAtOnce/same) {
		var ops []clientv3.Op
		for _, kv := range chunk {
			key := base(kv.Key)
			for _, key := range []string{key, shadowOf(key)} {
				is := clientv3.Compare(clientv3.CreateRevision(key), "=", kv.CreateRevision)
				ops = append(ops, clientv3.OpTxn([]clientv3.Cmp{is}, []clientv3.Op{clientv3.OpDelete(key)}, nil))
			}
		}
		if _, _, err := b.pool.txn(ctx, ordinary, nil, ops, nil); err != nil {
			return b.failure(ctx, err)
		}
	}
	return nil
}
