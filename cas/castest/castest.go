// Package castest tests a [cas.Store] in seconds. Run it before package conformance, which takes half a
// minute on the resulting Backend and fails in ways that are hard to read if the Store is wrong.
//
//	func TestStore(t *testing.T) {
//		castest.Run(t, castest.Harness{
//			New: func(t *testing.T) cas.Store { return connect(t, server.Addr) },
//			Cut: func(t *testing.T) (cas.Store, conformance.Fault) {
//				addr, fault := conformance.Proxy(t, server.Addr)
//				return connect(t, addr), fault
//			},
//		})
//	}
package castest

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/cas"
	"github.com/golockers/locker/conformance"
	"github.com/golockers/locker/driver"
)

// Harness says how to reach one service.
type Harness struct {
	// New returns another client of the service.
	New func(t *testing.T) cas.Store

	// Cut returns another client, whose connection can be broken. nil: no replies are lost.
	Cut func(t *testing.T) (cas.Store, conformance.Fault)
}

// Run tests the store, with a subtest for each promise.
func Run(t *testing.T, h Harness) {
	t.Helper()
	for _, c := range []struct {
		name string
		run  func(k *kit)
	}{
		{"conflicts", (*kit).conflicts},
		{"creators", (*kit).creators},
		{"versions", (*kit).versions},
		{"fresh", (*kit).fresh},
		{"keys", (*kit).keys},
		{"ages", (*kit).ages},
		{"watch", (*kit).watch},
		{"lost", (*kit).lost},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
			defer cancel()
			k := &kit{T: t, h: h, ctx: ctx, prefix: "castest-" + rand.Text()[:8] + "-"}
			k.a, k.b = h.New(t), h.New(t)
			c.run(k)
		})
	}
}

type kit struct {
	*testing.T
	h      Harness
	ctx    context.Context
	prefix string    // of the keys of this run
	a, b   cas.Store // two clients
}

// load reads a record that must be there or, if version is empty, must not be.
func (k *kit) load(s cas.Store, key string) cas.Entry {
	k.Helper()
	e, err := s.Load(k.ctx, key)
	require.NoError(k, err, "Load of %.60q: a record that does not exist is no error", key)
	return e
}

// swap makes a write that must succeed.
func (k *kit) swap(s cas.Store, key, version, value string) string {
	k.Helper()
	next, err := s.Swap(k.ctx, key, version, []byte(value))
	require.NoError(k, err, "Swap of %.60q under the version that it has", key)
	require.NotEmpty(k, next, "Swap returns the new version")
	return next
}

// is requires that both clients find that value and version under key.
func (k *kit) is(key, version, value string) {
	k.Helper()
	for _, s := range []cas.Store{k.a, k.b} {
		e := k.load(s, key)
		require.Equal(k, value, string(e.Value), "the value of %.60q", key)
		require.Equal(k, version, e.Version, "Load and Swap tell one version of %.60q in one way", key)
	}
}

// conflict requires that a Swap is refused because of its version.
func (k *kit) conflict(s cas.Store, key, version string) {
	k.Helper()
	_, err := s.Swap(k.ctx, key, version, []byte("must not be written"))
	require.ErrorIs(k, err, cas.ErrConflict, "a Swap of %.60q under version %q, which it does not have", key, version)
}

func (k *kit) conflicts() {
	key, other := k.prefix+"x", k.prefix+"y"
	require.Empty(k, k.load(k.a, key).Version, "there is no record yet")
	v0 := k.swap(k.a, other, "", "other")
	k.conflict(k.a, key, v0) // there is no record to change
	v1 := k.swap(k.a, key, "", "one")
	k.is(key, v1, "one")
	k.conflict(k.a, key, "")
	k.conflict(k.b, key, "")
	v2 := k.swap(k.b, key, v1, "two")
	k.conflict(k.a, key, v1)
	k.conflict(k.a, key, "")
	k.is(key, v2, "two")
	k.is(other, v0, "other")
}

// creators: of many concurrent writes under one version, exactly one succeeds, and its client knows.
func (k *kit) creators() {
	const many, rounds = 8, 10
	key, version, value := k.prefix+"n", "", ""
	stores := []cas.Store{k.a, k.b}
	for round := range rounds {
		var won atomic.Int32
		var next, wrote string
		var all sync.WaitGroup
		for i := range many {
			all.Go(func() {
				mine := fmt.Sprintf("%d by %d", round, i)
				v, err := stores[i%2].Swap(k.ctx, key, version, []byte(mine))
				switch {
				case err == nil && won.Add(1) == 1:
					next, wrote = v, mine
				case err != nil:
					assert.ErrorIs(k, err, cas.ErrConflict)
				}
			})
		}
		all.Wait()
		require.EqualValues(k, 1, won.Load(), "so many of %d have written under one version", many)
		version, value = next, wrote
		k.is(key, version, value)
	}
}

func (k *kit) versions() {
	seen, key, version := map[string]bool{"": true}, k.prefix+"v", ""
	for n := range 100 {
		version = k.swap(k.a, key, version, strconv.Itoa(n))
		require.False(k, seen[version], "version %q comes back", version)
		seen[version] = true
	}
	most := strings.Repeat("v", cmp.Or(k.a.Promises().MaxValue, 300_000))
	k.is(key, k.swap(k.a, key, version, most), most)
}

// fresh: a client sees what another has just written.
func (k *kit) fresh() {
	key, version := k.prefix+"f", ""
	for n := range 50 {
		version = k.swap(k.a, key, version, strconv.Itoa(n))
		require.Equal(k, version, k.load(k.b, key).Version, "the version that a Load sees after a Swap has returned")
	}
}

func (k *kit) keys() {
	versions := map[string]string{}
	for _, key := range []string{"a", "A", "a ", " a", "a/b", "a//b", "a/./b", "../a", "a.lock", "a%2Fb", "a\x00", "a\n", "é", "e\u0301", "ß",
		"ss", "*", "a*", "a.>", "[a]", "a_b", "axb", `"`, "'", `\`, "{}", "日本 🔒", "中", "中' OR 1=1 -- x", ".", "..", "-", strings.Repeat("n", 600),
		strings.Repeat("n", 599) + "m", strings.Repeat("\x00", 600)} {
		key = k.prefix + key
		versions[key] = k.swap(k.a, key, "", key)
	}
	for key, version := range versions {
		k.is(key, version, key)
	}
	for _, prefix := range []string{k.prefix, k.prefix + "a", k.prefix + "a/", k.prefix + "*", k.prefix + "[a]", k.prefix + "é", "none-" + k.prefix} {
		seen := map[string]int{}
		for key, err := range k.b.List(k.ctx, prefix) {
			require.NoError(k, err)
			seen[key]++
		}
		want := map[string]int{}
		for key := range versions {
			if strings.HasPrefix(key, prefix) {
				want[key] = 1
			}
		}
		require.Equal(k, want, seen, "the keys that List yields with the prefix %q, and how often", prefix)
	}
}

func (k *kit) ages() {
	key := k.prefix + "a"
	began := time.Now()
	version := k.swap(k.a, key, "", "one")
	if !k.a.Promises().Ages {
		require.Zero(k, k.load(k.a, key).Age, "an Age, and Promises say that there is none")
		return
	}
	require.Eventually(k, func() bool {
		age := k.load(k.b, key).Age
		assert.LessOrEqual(k, age, time.Since(began)+time.Second, "it is more than it can be") // rounded
		return age > time.Second
	}, 20*time.Second, 50*time.Millisecond, "the Age grows")
	began = time.Now()
	k.swap(k.a, key, version, "two")
	age := k.load(k.b, key).Age
	require.LessOrEqual(k, age, time.Since(began)+time.Second/2, "a write begins it anew")
}

func (k *kit) watch() {
	w, ok := k.a.(cas.Watcher)
	if !ok {
		k.Skip("the store is no Watcher")
	}
	key, told := k.prefix+"w", make(chan struct{}, 100)
	stop, err := w.Watch(k.ctx, key, func() {
		select {
		case told <- struct{}{}:
		default:
		}
	})
	require.NoError(k, err)
	defer stop()
	version := ""
	for n := range 3 {
		for len(told) > 0 {
			<-told
		}
		version = k.swap(k.b, key, version, strconv.Itoa(n))
		select {
		case <-told:
		case <-time.After(20 * time.Second):
			require.Fail(k, "a change was not told", "write %d", n)
		}
	}
}

// lost: without an answer, the error claims neither that the write happened nor that it did not, unless
// that is certain; and a late write changes nothing that another has written meanwhile.
func (k *kit) lost() {
	if k.h.Cut == nil {
		k.Skip("the Harness has no Cut")
	}
	const pass, hold, drop, reset = conformance.Pass, conformance.Hold, conformance.Drop, conformance.Reset
	for _, c := range []struct {
		what              string
		requests, replies conformance.Mode
		then              []conformance.Mode // for replies, after the write: a driver that repeats the request is answered now
	}{
		{"requests are lost", drop, pass, nil},
		{"requests are held", hold, pass, nil},
		{"requests are overtaken", conformance.HoldOpen, pass, nil},
		{"replies are lost", pass, drop, nil},
		{"replies are held", pass, hold, nil},
		{"replies reset connections", pass, reset, nil},
		{"one reply is lost", pass, drop, []conformance.Mode{pass}},
		{"one connection breaks", pass, hold, []conformance.Mode{reset, pass}},
	} {
		for _, version := range []string{"", "one"} { // a new record, and a changed one
			cut, fault := k.h.Cut(k.T)
			key := k.prefix + c.what + version
			if version != "" {
				version = k.swap(k.a, key, "", "before")
			}
			k.load(cut, key)
			fault.Requests(c.requests)
			fault.Replies(c.replies)
			ctx, cancel := context.WithTimeout(k.ctx, 3*time.Second) // as the Backend bounds it
			ended := make(chan error, 1)
			go func() {
				_, err := cut.Swap(ctx, key, version, []byte("late"))
				ended <- err
			}()
			patience := 300 * time.Millisecond
			if c.requests == pass {
				require.Eventually(k, func() bool { return len(ended) > 0 || string(k.load(k.a, key).Value) == "late" },
					20*time.Second, time.Millisecond, "%s: the request has arrived, or was given up", c.what)
				patience = 2 * time.Second * time.Duration(min(len(c.then), 1))
			}
			for _, mode := range c.then {
				fault.Replies(mode)
			}
			time.AfterFunc(patience, cancel)
			err := <-ended
			cancel()
			certain := errors.Is(err, cas.ErrConflict) || errors.Is(err, cas.ErrUnwritten)
			require.NotErrorIs(k, err, driver.ErrRefused, "%s: that is an outage", c.what)
			if certain {
				k.mend(cut, fault, key)
			}
			last := ""
			for last == "" { // another client writes, after everything that has arrived so far
				now := k.load(k.a, key)
				written := string(now.Value) == "late"
				require.False(k, written && certain, "%s: it was written, and the error is certain that it was not: %v", c.what, err)
				require.False(k, !written && err == nil, "%s: it was not written, and there is no error", c.what)
				var conflict error
				if last, conflict = k.b.Swap(k.ctx, key, now.Version, []byte("after")); conflict != nil {
					require.ErrorIs(k, conflict, cas.ErrConflict)
					last = ""
				}
			}
			k.mend(cut, fault, key)
			k.is(key, last, "after")
		}
	}
}

// mend waits until the connection works again, and delayed requests have arrived.
func (k *kit) mend(cut cas.Store, fault conformance.Fault, key string) {
	fault.Requests(conformance.Pass)
	fault.Replies(conformance.Pass)
	require.Eventually(k, func() bool {
		ctx, cancel := context.WithTimeout(k.ctx, time.Second)
		defer cancel()
		_, err := cut.Load(ctx, key)
		return err == nil
	}, 20*time.Second, 10*time.Millisecond, "a connection that is well again")
	time.Sleep(50 * time.Millisecond)
}
