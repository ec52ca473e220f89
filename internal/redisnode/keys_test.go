package redisnode_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/internal/redisnode"
)

// awkward are names that a careless key layout confuses.
var awkward = []string{
	"", "a", "A", "ab", "%", "%25", "%7D", "%7d", "{", "}", "{}", "{}a", "a{b}c", "a}:fence", "a}:wait",
	"}:void:x", "{a}", "{{a}}",
	"a:fence", "a:wait", "a:void:x", "locker:2:{a}", "ü", "\x00", "\xff\xfe", "a\r\nb", " ", "*", "[a-z]?",
	strings.Repeat("x", 640), strings.Repeat("{", 640), strings.Repeat("Ж", 320),
}

// keysOf are all the keys and channels of a name.
func keysOf(name string) (keys []string) {
	for _, owner := range []string{"owner", "}:fence"} {
		k := redisnode.KeysOf(name, owner, "", "")
		keys = append(keys, k.Void().(string))
		if owner == "owner" {
			for _, key := range []any{k.Lock, k.Quorum(), k.Wait()} {
				keys = append(keys, key.(string))
			}
		}
	}
	return append(keys, redisnode.WakeChannel(name))
}

func TestKeysAreThoseOfTheDocumentation(t *testing.T) {
	k := redisnode.KeysOf("orders/42", "me", ":", "label")
	assert.Equal(t, "orders/42", k.Name)
	assert.Equal(t, "locker:2:{orders/42}", k.Lock)
	assert.Equal(t, "locker:2:{orders/42}:quorum", k.Quorum())
	assert.Equal(t, "locker:2:{orders/42}:wait", k.Wait())
	assert.Equal(t, "locker:2:{orders/42}:void:me:label", k.Void())
	assert.Equal(t, "me:label", k.Value())
	assert.Equal(t, k.Lock, redisnode.LockKey("orders/42"))
	assert.Equal(t, "locker:2:{orders/42}:wake", redisnode.WakeChannel("orders/42"))
	assert.Equal(t, "locker:2:{a%7Bb%7Dc%25}", redisnode.LockKey("a{b}c%"))
	assert.Equal(t, "locker:2:{%}", redisnode.LockKey(""))
}

func TestNoNameMakesAnothersKey(t *testing.T) {
	owner := map[string]string{}
	for _, name := range awkward {
		for _, key := range keysOf(name) {
			other, taken := owner[key]
			require.False(t, taken, "%q is a key of %q and of %q", key, other, name)
			owner[key] = name
		}
	}
}

func TestNameOfReadsWhatLockKeyWrote(t *testing.T) {
	for _, name := range awkward {
		got, ok := redisnode.NameOf(redisnode.LockKey(name))
		assert.True(t, ok, "%q", name)
		assert.Equal(t, name, got)
	}
	for _, key := range []string{
		"", "a", "locker:2:{}", "locker:2:{a", "locker:1:{a}", "locker:2:{a}:fence", "locker:2:{a}}",
		"locker:2:{%7d}", "locker:2:{%2}", "locker:2:{a}b}", "xlocker:2:{a}",
	} {
		_, ok := redisnode.NameOf(key)
		assert.False(t, ok, "%q is no lock's key", key)
	}
}

func FuzzKeysAreInjective(f *testing.F) {
	for _, name := range awkward {
		f.Add(name, name+"}")
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		got, ok := redisnode.NameOf(redisnode.LockKey(a))
		if !ok || got != a {
			t.Fatalf("%q came back as %q", a, got)
		}
		if utf8.ValidString(a) && !utf8.ValidString(redisnode.LockKey(a)) {
			t.Fatalf("the key of %q is not UTF-8 any more", a)
		}
		if a == b {
			return
		}
		for _, ka := range keysOf(a) {
			for _, kb := range keysOf(b) {
				if ka == kb {
					t.Fatalf("%q and %q share %q", a, b, ka)
				}
			}
		}
	})
}

func TestAllKeysOfALockAreInOneHashSlot(t *testing.T) {
	server := lab.StartRedis(t, lab.WithConfig("cluster-enabled", "yes"))
	slot := func(key string) any { return server.MustDo(t, "CLUSTER", "KEYSLOT", []byte(key)) }
	for _, name := range awkward {
		for _, key := range append(keysOf(name), redisnode.SlotTokensKey(name)) {
			require.Equal(t, slot(redisnode.LockKey(name)), slot(key), "slot of %q", key)
		}
	}
}
