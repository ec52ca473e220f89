package etcd

import (
	"fmt"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/assert"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// drawn is a queue, in its order:
//
//	W waits or holds alone   R together   with a shadow if a + follows
//	w, r: only the shadow is left of one with StrictExpiry
//	k, l: the same, its time is counted
//	m, n: the same, of one with MinHold that was not granted
func drawn(queue string) (kvs []*mvccpb.KeyValue) {
	put := func(i int, shared, shadow bool, value string, lease int64) {
		mark := ""
		if shared {
			mark = sharedMark
		}
		key := fmt.Sprintf("locker/1/lock/s/%sA.%d", mark, i)
		if shadow {
			key = shadowOf(key)
		}
		kvs = append(kvs, &mvccpb.KeyValue{
			Key:   []byte(key),
			Value: []byte(value), CreateRevision: int64(10 + i), Lease: lease,
		})
	}
	for i, c := range queue {
		switch c {
		case 'W', 'R':
			put(i, c == 'R', false, "owner:label", 1)
		case '+':
			put(i-1, queue[i-1] == 'R', true, "owner/7:label", 0)
		case 'w', 'r':
			put(i, c == 'r', true, "owner/7:label", 0)
		case 'k', 'l':
			put(i, c == 'l', true, "owner/7:label", 1)
		case 'm', 'n':
			put(i, c == 'n', true, "owner/0:label", 0)
		}
	}
	return kvs
}

// What becomes of each place in a sweep: - it stays as it is, C its time is counted from now on, X it is
// deleted.
func TestDeadOfAQueue(t *testing.T) {
	for queue, want := range map[string]string{
		// Of one kind: the first may believe, the others were never granted.
		"w": "C", "ww": "CX", "kw": "-X", "Ww": "-X", "mw": "XC", "mmW": "XX-", "W+w": "--X",
		// Sharers may believe together.
		"rr": "CC", "Rr": "-C", "lr": "-C", "rRr": "C-C", "R+rR": "--C-", "nr": "XC", "Rn": "-X",
		// Who wants it alone has them in the way, and is in theirs.
		"Rw": "-X", "rw": "CX", "lw": "-X", "nw": "XC", "rRwr": "C-XC",
		"Wr": "-X", "wr": "CX", "kr": "-X", "mr": "XC", "wrr": "CXX",
		"rWr": "C-X", "RWrw": "--XX", "RwrWr": "-XC-X",
	} {
		kvs := drawn(queue)
		fates := strings.Split(strings.Repeat("-", len(queue)), "")
		counted, orphans := dead(kvs)
		for _, kv := range counted[7] {
			fates[kv.CreateRevision-10] = "C"
		}
		for _, o := range orphans {
			fates[o.shadow.CreateRevision-10] = "X"
			if o.behind != nil {
				assert.Less(t, o.behind.CreateRevision, o.shadow.CreateRevision, queue)
				assert.False(t, isShared(string(o.behind.Key)) && isShared(string(o.shadow.Key)), queue)
			}
		}
		assert.Equal(t, want, strings.Join(fates, ""), queue)
	}
}

func TestHoldersOfAQueue(t *testing.T) {
	for queue, want := range map[string]int{
		"": 0, "W": 1, "WW": 1, "W+R": 1, "WRR": 1, "R": 1, "RR": 2, "RRWR": 2, "R+RrW": 3, "rW": 1, "kR": 1,
		"n": 0, "nR": 1, "mW": 1, "RnR": 2, "WmW": 1, // one that waited in vain is gone, and has left its shadow
	} {
		have, wait := holders(drawn(queue))
		places := strings.NewReplacer("+", "", "m", "", "n", "").Replace(queue)
		assert.Len(t, have, want, queue)
		assert.Len(t, wait, len(places)-want, queue)
	}
}

// Releases that know nothing of sharers see their keys as those of any others.
func TestKeysOfSharersAreAmongThePlaces(t *testing.T) {
	b := &Backend{keys: keys{base: "locker/1/"}, id: "7ZA2", inUse: map[string]*hold{}}
	for _, name := range []string{"n", "s", "s/s", "", "~", "a/"} {
		queue := b.keys.queue(name)
		h, sharer := &hold{queue: queue, owner: "x"}, &hold{queue: queue, owner: "x"}
		b.name(h, false)
		b.name(sharer, true)
		assert.False(t, h.isShared() || isShared(h.key) || isShared(shadowOf(h.key)), h.key)
		assert.True(t, sharer.isShared() && isShared(sharer.key) && isShared(shadowOf(sharer.key)), sharer.key)
		for _, key := range []string{h.key, shadowOf(h.key)} {
			assert.True(t, queue < key && key < alone(queue), key)
		}
		for _, key := range []string{sharer.key, shadowOf(sharer.key)} {
			assert.True(t, alone(queue) <= key && key < places(queue), key)
		}
		assert.Less(t, places(queue), void(queue, "x"))
		for _, key := range []string{h.key, sharer.key} {
			assert.Equal(t, key, base([]byte(key)))
			assert.Equal(t, key, base([]byte(shadowOf(key))))
		}
		keys, shadows := sharers(queue), sharersShadows(queue)
		isIn := func(op clientv3.Op, key string) bool {
			return string(op.KeyBytes()) <= key && key < string(op.RangeBytes())
		}
		assert.True(t, isIn(keys, sharer.key) && !isIn(shadows, sharer.key), sharer.key)
		assert.True(t, isIn(shadows, shadowOf(sharer.key)) && !isIn(keys, shadowOf(sharer.key)), sharer.key)
	}
	for _, c := range b.id {
		assert.True(t, unicode.IsDigit(c) || unicode.IsUpper(c))
	}
}

// Numbers are used again: the names of deleted keys cost time. A repeated request finds its own.
func TestNumbersOfSharersStaySmall(t *testing.T) {
	b := &Backend{inUse: map[string]*hold{}}
	used := map[string]bool{}
	const many = 1000
	for range 5 {
		var all []*hold
		for i := range many {
			h := &hold{b: b, queue: "q/", owner: fmt.Sprint("owner", i), s: &session{}}
			b.name(h, true)
			again := &hold{b: b, queue: "q/", owner: h.owner, s: h.s}
			b.name(again, true)
			assert.Equal(t, h.key, again.key)
			used[h.key] = true
			all = append(all, h)
		}
		assert.Len(t, b.inUse, many)
		for _, h := range all {
			delete(b.inUse, h.key)
		}
	}
	assert.Less(t, len(used), 3*many)
	alone := &hold{b: b, queue: "q/", owner: "alone"}
	b.name(alone, true)
	assert.Equal(t, "q/s.0", alone.key)
}
