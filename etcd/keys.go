package etcd

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
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
		return fmt.Errorf("Options.Prefix is %q: its keys would stand among the locks of the prefix before %s: write it without that",
			prefix, strings.TrimSuffix(locksPart, "/"))
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

// void is the key that, if it is there, makes the acquire with that owner do
// nothing. It is among the keys of its queue, so that one look at them says
// that the queue is empty and nothing is void.
func void(queue, owner string) string { return queue + voidMark + escape.Replace(owner) }

// tokensKey is the key that says what is added to the create revisions of a queue:
// see [locker.TokenRaiser]. It is there if tokens have ever been raised. No void key
// is like it, as the slash in an owner is escaped.
func tokensKey(queue string) string { return queue + voidMark + "/tokens" }

// voidMark sorts behind the hexadecimal digits that keys of clients begin with.
const voidMark = "~"

var escape = strings.NewReplacer("%", "%25", "/", "%2F")
var unescape = strings.NewReplacer("%25", "%", "%2F", "/")

// A key's value is OWNER:LABEL. Beside the key KEY there can be shadows, KEY!
// and KEY$, which are not on the session's lease and stay when it is gone. A
// shadow's value is OWNER/SECONDS:LABEL; the seconds are how long it keeps the
// lock once its key is gone.
const (
	labelMark   = ":"
	secondsMark = "/"
	strictMark  = "!" // Options.StrictExpiry
	minHoldMark = "$" // Request.MinHold
)

// base returns the key that a key is a shadow of, or itself.
func base(key []byte) string { return strings.TrimRight(string(key), strictMark+minHoldMark) }

// front returns the key that stands for those that were put at one time, of
// which kvs are the first or the last: the one on the session's lease, if it is
// still there.
func front(kvs []*mvccpb.KeyValue) *mvccpb.KeyValue {
	if len(kvs) == 0 {
		return nil
	}
	first := kvs[0]
	for _, kv := range kvs[1:] {
		if kv.CreateRevision == first.CreateRevision && len(kv.Key) < len(first.Key) {
			first = kv
		}
	}
	return first
}

// orphaned returns the TTL for which a shadow has to be kept whose key is gone,
// if nobody has begun to count it. kv is a front.
func orphaned(kv *mvccpb.KeyValue) (seconds int64, ok bool) {
	if kv.Lease != 0 || base(kv.Key) == string(kv.Key) {
		return 0, false
	}
	owner, _, _ := strings.Cut(string(kv.Value), labelMark)
	_, digits, _ := strings.Cut(owner, secondsMark)
	seconds, err := strconv.ParseInt(digits, 10, 64)
	return max(seconds, 1), err == nil
}

// label returns what a key's value says of its holder.
func label(kv *mvccpb.KeyValue) string {
	_, label, _ := strings.Cut(string(kv.Value), labelMark)
	return label
}

// wholeSeconds is d in the unit of etcd's leases, and never less (R16).
func wholeSeconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }
