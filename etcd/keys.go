package etcd

import (
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

// locks is what the keys of all queues begin with. It is no key itself.
func (k keys) locks() string { return k.base + "lock/" }

// queue is what all keys of a name begin with. No name reaches into another's:
// the slash behind it is the only one that is not escaped (R18).
func (k keys) queue(name string) string { return k.locks() + escape.Replace(name) + "/" }

// session is the key by which a session sees that its lease is there.
func (k keys) session(lease int64) string {
	return k.base + "session/" + strconv.FormatInt(lease, 16)
}

// What follows a queue in the names of its keys, in etcd's order:
//
//	!ID, !ID+     floors of those that were granted the name alone
//	!sID, !sID+   floors of sharers
//	ID            places of those that hold or wait for the name alone
//	sID           places of sharers
//	~OWNER        void keys
//	~/tokens      what is added to the create revisions
//
// An ID begins with a capital letter or a digit.
const (
	floorMark  = "!"
	afterFloor = "\""
	sharedMark = "s"
	voidMark   = "~"
	keptMark   = "+" // of the floor of a MinHold; without it, it is that of StrictExpiry
)

var escape = strings.NewReplacer("%", "%25", "/", "%2F")
var unescape = strings.NewReplacer("%25", "%", "%2F", "/")

// span is a range of keys.
type span struct{ from, end string }

func (s span) get(opts ...clientv3.OpOption) clientv3.Op {
	return clientv3.OpGet(s.from, append(opts, clientv3.WithRange(s.end))...)
}

func (s span) isEmpty() clientv3.Cmp { return isAbsent(s.from).WithRange(s.end) }

// everything is all of a queue that may be in somebody's way.
func everything(queue string) span { return span{queue + floorMark, queue + voidMark} }

// places are those in the way of one that comes later, and floors are the floors in its way.
func places(queue string, shared bool) span {
	if shared {
		return span{queue + afterFloor, queue + sharedMark}
	}
	return span{queue + afterFloor, queue + voidMark}
}

func floors(queue string, shared bool) span {
	if shared {
		return span{queue + floorMark, queue + floorMark + sharedMark}
	}
	return span{queue + floorMark, queue + afterFloor}
}

// sharers are the places of sharers, and sharersFloors their floors.
func sharers(queue string) span { return span{queue + sharedMark, queue + voidMark} }

func sharersFloors(queue string) span {
	return span{queue + floorMark + sharedMark, queue + afterFloor}
}

func is(key string, created int64) clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(key), "=", created)
}

func isAbsent(key string) clientv3.Cmp { return is(key, 0) }

func hasValue(key, value string) clientv3.Cmp {
	return clientv3.Compare(clientv3.Value(key), "=", value)
}

// ifIs does something if a key has a value.
func ifIs(key, value string, op clientv3.Op) clientv3.Op {
	return clientv3.OpTxn([]clientv3.Cmp{hasValue(key, value)}, []clientv3.Op{op}, nil)
}

// void is the key that, if it is there, makes the acquire with that owner do
// nothing. It is among the keys of its queue, so that one look at them says
// that the queue is empty and nothing is void.
func void(queue, owner string) string { return queue + voidMark + escape.Replace(owner) }

// tokensKey is the key that says what is added to the create revisions of a queue:
// see [driver.TokenRaiser]. It is there if tokens have ever been raised. No void key
// is like it, as the slash in an owner is escaped.
func tokensKey(queue string) string { return queue + voidMark + "/tokens" }

// ofQueue returns the queue of a key, and what follows.
func ofQueue(key string) (queue, rest string) {
	at := strings.LastIndexByte(key, '/') + 1
	return key[:at], key[at:]
}

// isFloor reports whether a key is a floor.
func isFloor(key []byte) bool {
	_, rest := ofQueue(string(key))
	return strings.HasPrefix(rest, floorMark)
}

// isShared reports whether a key is a sharer's place, or the floor of one.
func isShared(key []byte) bool {
	_, rest := ofQueue(string(key))
	return strings.HasPrefix(strings.TrimPrefix(rest, floorMark), sharedMark)
}

// placeOf returns the place that a key is a floor of, or the key itself.
func placeOf(key []byte) string {
	queue, rest := ofQueue(string(key))
	if floor, ok := strings.CutPrefix(rest, floorMark); ok {
		return queue + strings.TrimSuffix(floor, keptMark)
	}
	return queue + rest
}

// floorsOf returns the floors that a place may have: that of StrictExpiry, and that of a MinHold.
func floorsOf(place string) (strict, kept string) {
	queue, rest := ofQueue(place)
	return queue + floorMark + rest, queue + floorMark + rest + keptMark
}

// The value of a place is OWNER:LABEL, and that of a floor OWNER/SECONDS/CREATED:LABEL, with the seconds of
// the session and the create revision of the place.
const (
	labelMark   = ":"
	secondsMark = "/"
)

// numbers returns the seconds and the revision in the value of a floor.
func numbers(floor *mvccpb.KeyValue) (seconds, created int64) {
	owner, _, _ := strings.Cut(string(floor.Value), labelMark)
	_, text, _ := strings.Cut(owner, secondsMark)
	first, second, _ := strings.Cut(text, secondsMark)
	seconds, _ = strconv.ParseInt(first, 10, 64)
	created, _ = strconv.ParseInt(second, 10, 64)
	return seconds, created
}

// label returns what a key's value says of its holder.
func label(kv *mvccpb.KeyValue) string {
	_, label, _ := strings.Cut(string(kv.Value), labelMark)
	return label
}

// wholeSeconds is d in the unit of etcd's leases, and never less (R16).
func wholeSeconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }
