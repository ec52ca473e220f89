package etcd

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/golockers/locker"
	"github.com/golockers/locker/internal/etcderr"
	"github.com/golockers/locker/internal/raised"
)

// listPage is how many keys List reads at a time.
const listPage = 1000

// Inspect implements [locker.Inspector].
func (b *Backend) Inspect(ctx context.Context, name string) (locker.State, error) {
	queue, tokens, err := b.queue(ctx, name)
	if err != nil || len(queue) == 0 {
		return locker.State{}, b.failure(ctx, err)
	}
	st := state(queue, tokens)
	asked := map[int64]bool{0: true}
	have, _ := holders(queue)
	for _, kv := range have {
		if asked[kv.Lease] {
			continue
		}
		asked[kv.Lease] = true
		resp := new(pb.LeaseTimeToLiveResponse)
		req := &pb.LeaseTimeToLiveRequest{ID: kv.Lease}
		_, err := b.pool.invoke(ctx, ordinary, "Lease/LeaseTimeToLive", req, resp)
		if err != nil && !etcderr.LeaseGone(err) {
			return locker.State{}, b.failure(ctx, err)
		}
		// After a change of the leader it can be more than was granted. A lease that is gone has -1.
		left := time.Duration(min(resp.TTL, resp.GrantedTTL)) * time.Second
		st.Remaining = max(st.Remaining, left)
	}
	return st, nil
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
func state(queue []*mvccpb.KeyValue, tokens raised.Tokens) locker.State {
	slices.SortStableFunc(queue, func(a, b *mvccpb.KeyValue) int {
		return cmp.Compare(a.CreateRevision, b.CreateRevision)
	})
	have, wait := holders(queue)
	st := locker.State{Held: true, Label: label(have[0]), Waiters: len(wait), Waiting: labels(wait)}
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

// List implements [locker.Lister].
func (b *Backend) List(
	ctx context.Context, prefix string, found func(name string, st locker.State) error,
) error {
	from := b.keys.locks() + escape.Replace(prefix)
	end := clientv3.GetPrefixRangeEnd(from)
	var name string
	var queue []*mvccpb.KeyValue
	var tokens raised.Tokens
	tell := func() error {
		if len(queue) == 0 {
			return nil
		}
		return found(unescape.Replace(name), state(queue, tokens))
	}
	for {
		resp, err := b.pool.read(ctx, ordinary,
			clientv3.OpGet(from, clientv3.WithRange(end), clientv3.WithLimit(listPage)))
		if err != nil {
			return b.failure(ctx, err)
		}
		page := resp.Responses[0].GetResponseRange()
		for _, kv := range page.Kvs {
			of, place, _ := strings.Cut(strings.TrimPrefix(string(kv.Key), b.keys.locks()), "/")
			if of != name {
				if err := tell(); err != nil {
					return err
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
			return tell()
		}
	}
}

// Break implements [locker.Breaker]. It deletes the shadows of the holders, too:
// the next one is let in at once, whatever those before believe.
func (b *Backend) Break(ctx context.Context, name string) (locker.State, error) {
	var st locker.State
	for meant := int64(0); ; {
		queue, tokens, err := b.queue(ctx, name)
		if err != nil {
			return locker.State{}, b.failure(ctx, err)
		}
		if len(queue) == 0 || meant != 0 && queue[0].CreateRevision != meant {
			return st, nil // a request without an answer has done it: the next holder is not meant
		}
		first := front(queue)
		st = state(queue, tokens)
		if st.Sharers > 0 {
			have, _ := holders(queue)
			return st, b.failure(ctx, b.breakAll(ctx, have))
		}
		var ops []clientv3.Op
		for _, kv := range queue {
			if kv.CreateRevision == first.CreateRevision {
				ops = append(ops, clientv3.OpDelete(string(kv.Key)))
			}
		}
		is := clientv3.Compare(clientv3.CreateRevision(string(first.Key)), "=", first.CreateRevision)
		resp, f, err := b.pool.txn(ctx, ordinary, []clientv3.Cmp{is}, ops, nil)
		if err != nil || resp.Succeeded {
			return st, b.failure(ctx, err)
		}
		if f.carriedOut {
			meant = first.CreateRevision
		}
	}
}
