package redisnode

import (
	"strconv"
	"strings"
	"sync"
	"time"
)

// layout begins every key and channel. The number changes with the meaning of the keys,
// so that two releases of this library never misread each other's.
const layout = "locker:2:{"

const (
	// LabelMark stands between the owner and the label in a lock's value. The whole value is compared, so the label can
	// say anything.
	LabelMark = ":"
	// MaxToken is up to where a Lua number counts exactly, less one for the next.
	MaxToken = 1<<53 - 2
	// VoidTime is how late a request may arrive and still be refused, at least.
	VoidTime = time.Minute
)

// The characters of a name that would end or begin a hash tag, and the one that escapes them.
var (
	escape   = strings.NewReplacer("%", "%25", "{", "%7B", "}", "%7D")
	unescape = strings.NewReplacer("%25", "%", "%7B", "{", "%7D", "}")
)

// LockKey returns the key that holds the owner value of a lock: locker:2:{name}, where 2 is the
// version of the layout.
//
// The braces make all keys of a lock one hash tag, so that they live on one shard of a Redis
// Cluster. In the name, the bytes '{', '}' and '%' are written %7B, %7D and %25, and the empty name
// is written %: no two names share a key, and no name can end the tag early.
func LockKey(name string) string { return string(appendLockKey(nil, name)) }

func appendLockKey(b []byte, name string) []byte {
	switch {
	case name == "":
		// Redis takes {} for no tag at all and would hash each key of the lock to another shard.
		name = "%"
	case strings.ContainsAny(name, "%{}"):
		name = escape.Replace(name)
	}
	return append(append(append(b, layout...), name...), '}')
}

// WakeChannel returns the channel on which a release is published: locker:2:{name}:wake. Channels
// do not belong to a database: locks of one name in two databases of a server wake each other,
// needlessly but harmlessly.
func WakeChannel(name string) string { return LockKey(name) + wakeSuffix }

// Keys are the keys of one lock and its owner value, in one string, for 10,000 leases
// have 10,000 of them. Lock and what the methods return are strings in the form in
// which commands take them.
type Keys struct {
	Name       string
	Lock       any
	all        string // locker:2:{name}:wait, and behind it locker:2:{name}:void:value
	key, value int    // where the lock's key ends, and where the value begins
}

// KeysOf returns the keys for an owner value, which is the parts after each other.
func KeysOf(name string, owner, mark, label string) Keys {
	var room [512]byte
	b := appendLockKey(room[:0], name)
	key := len(b)
	b = append(append(b, waitSuffix...), b...)
	value := len(b) + len(voidSuffix)
	b = append(append(append(append(b, voidSuffix...), owner...), mark...), label...)
	all := string(b)
	return Keys{name, all[:key], all, key, value}
}

// Value returns the owner value.
func (k *Keys) Value() any { return k.all[k.value:] }

// Wait returns the key of the note that somebody waits: locker:2:{name}:wait.
func (k *Keys) Wait() any { return k.all[:k.key+len(waitSuffix)] }

// Sharers returns the key of those who share the lock: locker:2:{name}:shared.
func (k *Keys) Sharers() any { return k.all[:k.key] + sharedSuffix }

// Void returns the key of the note that the value must not be granted any more:
// locker:2:{name}:void:value.
func (k *Keys) Void() any { return k.all[k.key+len(waitSuffix):] }

// Quorum returns the key of the fencing counter that a quorum raises: locker:2:{name}:quorum.
func (k *Keys) Quorum() any { return k.all[:k.key] + quorumSuffix }

// RunsKey is where redlock notes which runs of a server have given votes.
const RunsKey = "locker:2:runs"

// TokensKey is the counter of the tokens of all names on one server: locker:2:tokens.
const TokensKey = "locker:2:tokens"

// slots is how many parts a Cluster divides keys into.
const slots = 1 << 14

// slotOf returns the slot of what stands between the braces of a key: its CRC16 (XMODEM).
func slotOf(tag string) uint16 {
	var crc uint16
	for i := range len(tag) {
		crc ^= uint16(tag[i]) << 8
		for range 8 {
			over := crc >> 15
			crc = crc<<1 ^ over*0x1021
		}
	}
	return crc % slots
}

// tags are short numbers, one for each slot.
var tags = sync.OnceValue(func() *[slots]string {
	var tags [slots]string
	for i, left := 0, slots; left > 0; i++ {
		tag := strconv.Itoa(i)
		if at := &tags[slotOf(tag)]; *at == "" {
			*at, left = tag, left-1
		}
	}
	return &tags
})

// SlotTokensKey is the counter of the tokens of all names in the name's slot of a Cluster:
// locker:2:tokens:{tag}, where the tag is the lowest number in the slot.
func SlotTokensKey(name string) string {
	lock := LockKey(name)
	return TokensKey + ":{" + tags()[slotOf(lock[len(layout):len(lock)-1])] + "}"
}

const (
	quorumSuffix = ":quorum"
	sharedSuffix = ":shared"
	waitSuffix   = ":wait"
	voidSuffix   = ":void:"
	wakeSuffix   = ":wake"
)

// NameOf is the inverse of LockKey; ok is false where key is not one that LockKey makes.
func NameOf(key string) (name string, ok bool) {
	inner, ok := strings.CutPrefix(key, layout)
	if !ok {
		return "", false
	}
	inner, ok = strings.CutSuffix(inner, "}")
	if !ok {
		return "", false
	}
	if inner != "%" {
		name = unescape.Replace(inner)
	}
	// Only what LockKey writes counts: not a{b}, not %7b, not the keys beside the lock.
	return name, LockKey(name) == key
}
