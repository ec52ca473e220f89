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
	"github.com/golockers/locker/internal/queue"
	"github.com/golockers/locker/internal/raised"
)

// listPage is how many keys List reads at a time.
const listPage = 1000

// entry is one who holds or waits: a place, or what is left of one, with its floors.
type entry struct {
	key     string // of the place, which may be gone
	created int64  // its create revision
	place   *mvccpb.KeyValue
	strict  *mvccpb.KeyValue // the floor of StrictExpiry
	minHold *mvccpb.KeyValue // that of a MinHold
}

func (e *entry) shared() bool { return isShared([]byte(e.key)) }

// keys are those that are there.
func (e *entry) keys() []*mvccpb.KeyValue {
	all := []*mvccpb.KeyValue{e.place, e.strict, e.minHold}
	return slices.DeleteFunc(all, func(kv *mvccpb.KeyValue) bool { return kv == nil })
}

// split parts the keys of a queue into those that hold the name and those that wait. A floor stands where its
// place stood: whoever waits came later.
func split(kvs []*mvccpb.KeyValue) (hold, wait []*entry) {
	all := map[string]*entry{}
	var entries []*entry
	for _, kv := range kvs {
		key := placeOf(kv.Key)
		e := all[key]
		if e == nil {
			e = &entry{key: key}
			all[key], entries = e, append(entries, e)
		}
		switch {
		case !isFloor(kv.Key):
			e.place, e.created = kv, kv.CreateRevision
		case strings.HasSuffix(string(kv.Key), keptMark):
			e.minHold = kv
		default:
			e.strict = kv
		}
		if e.place == nil {
			_, e.created = numbers(kv)
		}
	}
	slices.SortStableFunc(entries, func(a, b *entry) int { return cmp.Compare(a.created, b.created) })
	return queue.Split(entries, (*entry).shared)
}

// Inspect implements [driver.Operator].
func (b *Backend) Inspect(ctx context.Context, name string) (driver.State, error) {
	kvs, tokens, err := b.queue(ctx, name)
	if err != nil {
		return driver.State{Name: name}, b.failure(ctx, err)
	}
	st := state(name, kvs, tokens)
	hold, _ := split(kvs)
	now, left := time.Now(), map[int64]*pb.LeaseTimeToLiveResponse{}
	for i, e := range hold {
		var lasts, then time.Duration // the floor of StrictExpiry is counted when the lease is over
		for _, kv := range e.keys() {
			if kv.Lease == 0 {
				seconds, _ := numbers(kv)
				then = time.Duration(seconds) * time.Second
				continue
			}
			if left[kv.Lease] == nil {
				if left[kv.Lease], err = b.left(ctx, kv.Lease); err != nil {
					return driver.State{}, b.failure(ctx, err)
				}
			}
			// After a change of the leader, it can be said to last longer than was granted.
			l := left[kv.Lease]
			of := time.Duration(max(0, min(l.TTL, l.GrantedTTL))) * time.Second
			lasts = max(lasts, of)
			if kv == e.minHold && of > 0 {
				if until := now.Add(of); until.After(st.KeptUntil) {
					st.KeptUntil = until
				}
				if i == 0 {
					st.Since = now.Add(of - time.Duration(l.GrantedTTL)*time.Second)
				}
			}
		}
		st.Remaining = max(st.Remaining, lasts+then)
	}
	return st, nil
}

// left asks how long a lease lasts. The TTL of one that is gone is -1.
func (b *Backend) left(ctx context.Context, lease int64) (*pb.LeaseTimeToLiveResponse, error) {
	resp := new(pb.LeaseTimeToLiveResponse)
	_, err := b.pool.send(ctx, ordinary, "Lease/LeaseTimeToLive", &pb.LeaseTimeToLiveRequest{ID: lease}, resp)
	return resp, err
}

// queue returns the keys of those who hold or wait for name, and what is added to their revisions.
func (b *Backend) queue(ctx context.Context, name string) ([]*mvccpb.KeyValue, raised.Tokens, error) {
	queue := b.keys.queue(name)
	resp, err := b.pool.read(ctx, ordinary, everything(queue).get(), clientv3.OpGet(tokensKey(queue)))
	if err != nil {
		return nil, raised.Tokens{}, err
	}
	tokens, err := readTokens(resp.Responses[1])
	return resp.Responses[0].GetResponseRange().Kvs, tokens.Tokens, err
}

// maxWaiting is how many places of the queue State.Waiting covers, and State.Sharing.
const maxWaiting = 16

// state is what the keys of one queue say.
func state(name string, kvs []*mvccpb.KeyValue, tokens raised.Tokens) driver.State {
	hold, wait := split(kvs)
	if len(hold) == 0 {
		return driver.State{Name: name}
	}
	st := driver.State{
		Name: name, Held: true, Label: label(hold[0].keys()[0]), Waiters: len(wait), Waiting: labels(wait),
		Holder: fmt.Sprintf(holderForm, hold[0].created, hold[len(hold)-1].created),
	}
	if hold[0].shared() {
		st.Sharers, st.Sharing = len(hold), labels(hold)
	} else {
		st.Token = tokens.Of(hold[0].created)
	}
	return st
}

// labels are those of the first entries, each once.
func labels(entries []*entry) (all []string) {
	for _, e := range entries[:min(len(entries), maxWaiting)] {
		if l := label(e.keys()[0]); !slices.Contains(all, l) {
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
				of, rest, _ := strings.Cut(strings.TrimPrefix(string(kv.Key), b.keys.locks()), "/")
				if of != name {
					if !tell() {
						return
					}
					name, queue, tokens = of, nil, raised.Tokens{}
				}
				if string(kv.Key) == tokensKey(b.keys.locks()+of+"/") {
					tokens, _ = raised.Parse(string(kv.Value))
				} else if !strings.HasPrefix(rest, voidMark) {
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

// Break implements [driver.Operator]: it takes the lock from the holder that State.Holder names, or from all
// that share it with one who did then. A copy of it finds others, or nobody. It deletes floors, too: the next
// one is let in at once, whatever those before believe. The oldest sharers go last: as long as one is there,
// they are the same.
func (b *Backend) Break(ctx context.Context, st driver.State) error {
	var first, last int64
	_, _ = fmt.Sscanf(st.Holder, holderForm, &first, &last)
	if st.Holder != "" && st.Holder != fmt.Sprintf(holderForm, first, last) {
		return fmt.Errorf("%w: %q is no Holder of this backend", driver.ErrInvalid, st.Holder)
	}
	kvs, _, err := b.queue(ctx, st.Name)
	if err != nil {
		return b.failure(ctx, err)
	}
	hold, _ := split(kvs)
	if len(hold) == 0 || hold[0].created < first || hold[0].created > last || first != last && !hold[0].shared() {
		return nil
	}
	slices.Reverse(hold)
	for chunk := range slices.Chunk(hold, keysAtOnce/2) {
		var ops []clientv3.Op
		for _, e := range chunk {
			strict, minHold := floorsOf(e.key)
			var floors, all []clientv3.Op // if the place has gone, and if it is there
			for _, kv := range e.keys() {
				if isFloor(kv.Key) {
					floors = append(floors, ifIs(string(kv.Key), string(kv.Value), clientv3.OpDelete(string(kv.Key))))
				}
			}
			for _, key := range []string{e.key, strict, minHold} {
				all = append(all, clientv3.OpDelete(key))
			}
			ops = append(ops, clientv3.OpTxn([]clientv3.Cmp{is(e.key, e.created)}, all, floors))
		}
		if _, _, err := b.pool.txn(ctx, ordinary, nil, ops, nil); err != nil {
			return b.failure(ctx, err)
		}
	}
	return nil
}
