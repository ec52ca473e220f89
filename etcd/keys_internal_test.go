package etcd

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/stretchr/testify/assert"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/golockers/locker/internal/session"
)

// drawn is a queue, in its order:
//
//	W waits or holds alone   R together   with a floor if a + follows, and that of a MinHold if a * does
//	w, r: only the floor of StrictExpiry is left, whoever has begun to count its time
//	k, l: the same, of a MinHold
func drawn(queue string) (kvs []*mvccpb.KeyValue) {
	for i, c := range queue {
		of := i
		if c == '+' || c == '*' {
			of = strings.LastIndexAny(queue[:i], "WR")
		}
		key := fmt.Sprintf("locker/1/lock/s/A.%d", of)
		if strings.ContainsRune("Rrl", rune(queue[of])) {
			key = fmt.Sprintf("locker/1/lock/s/sA.%d", of)
		}
		kv := &mvccpb.KeyValue{Key: []byte(key), Value: []byte("owner:label"), CreateRevision: int64(10 + i)}
		if strict, minHold := floorsOf(key); strings.ContainsRune("+*wrkl", c) {
			kv.Key = []byte(strict)
			if strings.ContainsRune("*kl", c) {
				kv.Key = []byte(minHold)
			}
			kv.Value = fmt.Appendf(nil, "owner/7/%d:label", 10+of)
			kv.CreateRevision += 100 // it was put later
		}
		kvs = append(kvs, kv)
	}
	return kvs
}

func TestHoldersOfAQueue(t *testing.T) {
	for queue, want := range map[string]int{
		"": 0, "W": 1, "WW": 1, "W+R": 1, "WRR": 1, "R": 1, "RR": 2, "RRWR": 2, "R+RrW": 3, "rW": 1, "kR": 1, "W+*W": 1,
		"w": 1, "wW": 1, "wR": 1, "rRr": 3, "lRWR": 2, "R*lW": 2, "kW": 1, "W*": 1,
	} {
		hold, wait := split(drawn(queue))
		assert.Len(t, hold, want, queue)
		assert.Len(t, append(hold, wait...), len(queue)-strings.Count(queue, "+")-strings.Count(queue, "*"), queue)
		for i, e := range append(hold, wait...) {
			assert.NotEmpty(t, e.keys(), queue)
			assert.GreaterOrEqual(t, e.created, int64(10+i), queue)
			seconds, created := numbers(e.keys()[len(e.keys())-1])
			assert.True(t, e.strict == nil && e.minHold == nil || seconds == 7 && created == e.created, queue)
		}
	}
}

func TestKeysOfAQueue(t *testing.T) {
	b := &Backend{keys: keys{base: "locker/1/"}, id: "7ZA2", inUse: map[string]*hold{}}
	for _, name := range []string{"n", "s", "s/s", "", "~", "a/", "!", "a+"} {
		queue := b.keys.queue(name)
		h := &hold{l: &lease{}, queue: queue, owner: "x"}
		sharer := &hold{l: h.l, queue: queue, owner: "x", shared: true}
		b.name(h)
		b.name(sharer)
		in := func(s span, key string) bool { return s.from <= key && key < s.end }
		for _, h := range []*hold{h, sharer} {
			strict, minHold := floorsOf(h.key)
			for _, key := range []string{h.key, strict, minHold} {
				assert.Equal(t, h.shared, isShared([]byte(key)), key)
				assert.Equal(t, h.key, placeOf([]byte(key)), key)
				assert.Equal(t, key != h.key, isFloor([]byte(key)), key)
				assert.True(t, in(everything(queue), key), key)
				assert.Equal(t, key == h.key, in(places(queue, false), key), key)
				assert.Equal(t, key == h.key && !h.shared, in(places(queue, true), key), key)
				assert.Equal(t, key != h.key, in(floors(queue, false), key), key)
				assert.Equal(t, key != h.key && !h.shared, in(floors(queue, true), key), key)
				assert.Equal(t, key == h.key && h.shared, in(sharers(queue), key), key)
				assert.Equal(t, key != h.key && h.shared, in(sharersFloors(queue), key), key)
			}
		}
		for _, key := range []string{void(queue, "x"), tokensKey(queue)} {
			assert.False(t, in(everything(queue), key), key)
		}
	}
	for _, c := range b.id {
		assert.True(t, unicode.IsDigit(c) || unicode.IsUpper(c))
	}
	once := &hold{l: &lease{}, queue: "q/", owner: "x+", minHold: 1}
	b.name(once)
	assert.Equal(t, "q/7ZA2.x+.0", once.key)
	_, minHold := floorsOf(once.key)
	assert.Equal(t, once.key, placeOf([]byte(minHold)))
}

// Numbers are used again: the names of deleted keys cost time. A repeated request finds its own.
func TestNumbersOfSharersStaySmall(t *testing.T) {
	b := &Backend{inUse: map[string]*hold{}}
	l := &lease{Session: session.New(time.Hour)}
	used := map[string]bool{}
	const many = 1000
	for range 5 {
		var all []*hold
		for i := range many {
			h := &hold{b: b, queue: "q/", shared: true, owner: fmt.Sprint("owner", i), l: l}
			b.name(h)
			again := &hold{b: b, queue: "q/", shared: true, owner: h.owner, l: h.l}
			b.name(again)
			assert.Equal(t, h.key, again.key)
			used[h.key] = true
			all = append(all, h, again)
		}
		assert.Len(t, b.inUse, 2*many, "each by its key, and by what was asked")
		for _, h := range all {
			h.become(settled)
		}
		assert.Empty(t, b.inUse)
	}
	assert.Less(t, len(used), 3*many)
	alone := &hold{b: b, l: l, queue: "q/", shared: true, owner: "alone"}
	b.name(alone)
	assert.Equal(t, "q/s.0", alone.key)
}
