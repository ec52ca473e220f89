package etcd

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// keys makes etcd keys of names. The layout is part of what two releases of
// this package have to agree on: base ends in its version.
type keys struct{ base string }

// locksPart is what stands between a prefix and the names. A prefix that has it
// too would put its keys into a queue of a shorter one. Without it in either,
// no prefix's keys are among another's.
const locksPart = "/1/lock/"

// checkPrefix reports a prefix that is in the way of another.
func checkPrefix(prefix string) error {
	if strings.Contains(prefix+"/", locksPart) {
		return fmt.Errorf("Options.Prefix is %q: its keys would stand among the locks of the prefix before %s: "+
			"write it without that", prefix, strings.TrimSuffix(locksPart, "/"))
	}
	return nil
}

// locks is what the keys of all queues begin with. It is no key itself.
func (k keys) locks() string { return k.base + "lock/" }

// queue is what all keys of a name begin with. No name reaches into another's:
// the slash behind it is the only one that is not escaped (R18).
func (k keys) queue(name string) string { return k.locks() + escape.Replace(name) + "/" }

// session is the key by which a session sees that its lease is there.
func (k keys) session(lease int64) string {
	return k.base + "session/" + strconv.FormatInt(lease, 16)
}

// places is the end of the range that begins with a queue and has the keys of
// those who hold or wait in it, and not the void ones.
func places(queue string) string { return queue + voidMark }

// alone is the end of the range that has the keys of those who hold or wait for a queue's name alone.
func alone(queue string) string { return queue + sharedMark }

// sharers reads the keys of those who hold or wait for it together, and sharersShadows their shadows.
func sharers(queue string, opts ...clientv3.OpOption) clientv3.Op {
	from := clientv3.GetPrefixRangeEnd(alone(queue) + shadowMark)
	return clientv3.OpGet(from, append(opts, clientv3.WithRange(places(queue)))...)
}

func sharersShadows(queue string, opts ...clientv3.OpOption) clientv3.Op {
	return clientv3.OpGet(alone(queue)+shadowMark, append(opts, clientv3.WithPrefix())...)
}

// void is the key that, if it is there, makes the acquire with that owner do
// nothing. It is among the keys of its queue, so that one look at them says
// that the queue is empty and nothing is void.
func void(queue, owner string) string { return queue + voidMark + escape.Replace(owner) }

// tokensKey is the key that says what is added to the create revisions of a queue:
// see [driver.TokenRaiser]. It is there if tokens have ever been raised. No void key
// is like it, as the slash in an owner is escaped.
func tokensKey(queue string) string { return queue + voidMark + "/tokens" }

// The name of a client's key begins with a capital letter or a digit. sharedMark, which a sharer's has
// before it, sorts behind them, and voidMark behind both: all places of a queue are one range, and those of
// each kind.
const (
	sharedMark = "s"
	voidMark   = "~"
)

var escape = strings.NewReplacer("%", "%25", "/", "%2F")
var unescape = strings.NewReplacer("%25", "%", "%2F", "/")

// A key's value is OWNER:LABEL. Beside the key KEY there can be a shadow, KEY!, which is not on the
// session's lease and stays when it is gone. The shadow of a sharer's sKEY is s!KEY, so that the ones are
// counted without the others. A shadow's value is OWNER/SECONDS:LABEL.
const (
	labelMark   = ":"
	secondsMark = "/"
	shadowMark  = "!"
)

// shadow is how long the shadow of a key keeps the lock.
type shadow int

const (
	without shadow = iota
	// strict (Options.StrictExpiry): for its SECONDS from when somebody finds that its key is gone. Until
	// then it is on no lease. With MinHold, the SECONDS are the longer of that and the TTL.
	strict
	// kept (Request.MinHold): for as long as the lease of its own lasts that it is put on with the grant. Its
	// SECONDS are 0: one that is on no lease was never granted.
	kept
)

// shadowOf returns the key of a key's shadow.
func shadowOf(key string) string {
	if isShared(key) {
		at := strings.LastIndexByte(key, '/') + 1 + len(sharedMark)
		return key[:at] + shadowMark + key[at:]
	}
	return key + shadowMark
}

// base returns the key that a key is a shadow of, or itself.
func base(shadow []byte) string {
	key := string(shadow)
	if isShared(key) {
		at := strings.LastIndexByte(key, '/') + 1 + len(sharedMark)
		return key[:at] + strings.TrimPrefix(key[at:], shadowMark)
	}
	return strings.TrimSuffix(key, shadowMark)
}

// same is how many keys can have been put at one time: a key and its shadow. They are one place of the queue.
const same = 2

// oldest and newest are options for the place up to end that was there first or last, inOrder for all
// places of a queue.
func oldest(end string) []clientv3.OpOption {
	return append(clientv3.WithFirstCreate(), clientv3.WithRange(end), clientv3.WithLimit(same))
}

func newest(end string) []clientv3.OpOption {
	return append(clientv3.WithLastCreate(), clientv3.WithRange(end), clientv3.WithLimit(same))
}

func inOrder(queue string) []clientv3.OpOption {
	return append(clientv3.WithFirstCreate(), clientv3.WithRange(places(queue)), clientv3.WithLimit(0))
}

// eachPlace yields the keys of each place of a queue that is in order.
func eachPlace(kvs []*mvccpb.KeyValue) iter.Seq[[]*mvccpb.KeyValue] {
	return func(yield func([]*mvccpb.KeyValue) bool) {
		for len(kvs) > 0 {
			n := 1
			for n < len(kvs) && kvs[n].CreateRevision == kvs[0].CreateRevision {
				n++
			}
			if !yield(kvs[:n:n]) {
				return
			}
			kvs = kvs[n:]
		}
	}
}

// front returns the key that stands for the first place of kvs: the one on the session's lease, if it is
// still there, or else its shadow.
func front(kvs []*mvccpb.KeyValue) *mvccpb.KeyValue {
	for place := range eachPlace(kvs) {
		return slices.MinFunc(place, func(a, b *mvccpb.KeyValue) int { return cmp.Compare(len(a.Key), len(b.Key)) })
	}
	return nil
}

// isShared reports whether a key is a sharer's, or the shadow of one.
func isShared(key string) bool {
	return strings.HasPrefix(key[strings.LastIndexByte(key, '/')+1:], sharedMark)
}

// hasShadow reports whether the first place of a queue has two keys.
func hasShadow(kvs []*mvccpb.KeyValue) bool {
	return len(kvs) >= same && kvs[0].CreateRevision == kvs[1].CreateRevision
}

// isDead reports whether kv, a front, is a shadow whose key is gone.
func isDead(kv *mvccpb.KeyValue) bool { return base(kv.Key) != string(kv.Key) }

// isUncounted reports whether kv is a shadow that nobody has begun to count the time of.
func isUncounted(kv *mvccpb.KeyValue) bool { return isDead(kv) && kv.Lease == 0 }

// wasNeverGranted reports whether kv, a front, is all that is left of an attempt that was not granted.
func wasNeverGranted(kv *mvccpb.KeyValue) bool { return isUncounted(kv) && seconds(kv) == 0 }

// seconds are those of a shadow's value.
func seconds(kv *mvccpb.KeyValue) int64 {
	owner, _, _ := strings.Cut(string(kv.Value), labelMark)
	_, digits, _ := strings.Cut(owner, secondsMark)
	n, _ := strconv.ParseInt(digits, 10, 64)
	return n
}

// label returns what a key's value says of its holder.
func label(kv *mvccpb.KeyValue) string {
	_, label, _ := strings.Cut(string(kv.Value), labelMark)
	return label
}

// wholeSeconds is d in the unit of etcd's leases, and never less (R16).
func wholeSeconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }
