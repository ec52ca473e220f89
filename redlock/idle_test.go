package redlock_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/internal/locktest"
	"github.com/golockers/locker/internal/redisnode"
	"github.com/golockers/locker/redlock"
)

// Over TLS the driver does not see that an idle connection was closed. Every node
// answers all the same, although all connections of all pools are closed.
func TestProveIdleConnectionsThatWereClosedCostNoVote(t *testing.T) {
	lab.NeedProve(t)
	certs := lab.NewCerts(t)
	s := start(t, 3, lab.WithTLS(certs), lab.WithAppendOnly()).proven(t)
	var clients []*redis.Client
	for _, r := range s.servers {
		clients = append(clients, newClient(t, &redis.Options{Addr: r.Addr(), TLSConfig: certs.ClientConfig(), MaxRetries: -1}))
	}
	b := on(t, redlock.Options{Fencing: true}, clients...)
	ctx := t.Context()
	closed := func() {
		for i, c := range clients {
			var all []*redis.Conn
			for range 3 {
				conn := c.Conn()
				for conn.Ping(ctx).Err() != nil { // it was closed, too
					require.NoError(t, conn.Close())
					conn = c.Conn()
				}
				all = append(all, conn)
			}
			for _, conn := range all {
				require.NoError(t, conn.Close())
			}
			s.servers[i].HangUp(t)
		}
	}
	name := func() string { return rand.Text() }
	on := func(n int, name, what string) {
		t.Helper()
		within(t, 30*time.Second, what, func() bool { return s.holders(t, name) == n })
	}
	// A server that was never asked is looked at before its vote, and one that is slow at that is not asked for it
	// any more once the others are a quorum.
	first := acquire(t, b, "first", time.Minute)
	within(t, 30*time.Second, "each server was looked at", func() bool {
		_, err := first.Hold.Renew(ctx)
		require.NoError(t, err)
		return s.holders(t, "first") == 3
	})
	for range 2 {
		n := name()
		closed()
		g := acquire(t, b, n, time.Minute)
		on(3, n, "each node has voted")
		closed()
		_, err := g.Hold.Renew(ctx)
		require.NoError(t, err)
		closed()
		found, err := b.Check(ctx)
		require.NoError(t, err)
		for _, f := range found {
			assert.NotContains(t, f.What, "node ", "%v", f)
		}
		closed()
		require.NoError(t, g.Hold.Release(ctx, 0))
		on(0, n, "each node has released")
	}
}

// A time limit of ours is not the caller's: its errors match no error of a context. The caller's own
// deadline is told as such, and no node that hangs is waited for beyond it (R8).
func TestOurTimeLimitsAreNotTheCallersDeadline(t *testing.T) {
	s := durable(t, 3)
	s.patient = true // the driver is
	b, cold := s.through(t, redlock.Options{Fencing: true}), s.through(t, redlock.Options{NodeTimeout: hasty})
	tries := s.through(t, redlock.Options{NodeTimeout: hasty})
	warm(t, tries)
	g := acquire(t, b, "held", time.Minute)
	s.everywhere(t, g, "held")
	url := "redlock://"
	for i, p := range s.proxies {
		p.Set(lab.Drop)
		url += []string{"", ","}[min(i, 1)] + p.Addr()
	}
	for what, ask := range map[string]func(ctx context.Context) error{
		"open": func(ctx context.Context) error { _, err := locker.Open(ctx, url, nil, openers); return err },
		"acquire": func(ctx context.Context) error {
			g, err := locktest.Ask(ctx, tries, request("x", 10*time.Second))
			if tries.Nodes()[0].InFlight > 0 { // it came so far before the caller's time was up
				assert.NotNil(t, g.Hold, "a vote may arrive later")
			} else {
				assert.Error(t, ctx.Err(), "nothing was asked")
			}
			return err
		},
		"look": func(ctx context.Context) error {
			_, err := locktest.Ask(ctx, cold, request("x", 10*time.Second))
			return err
		},
		"renew": func(ctx context.Context) error { _, err := g.Hold.Renew(ctx); return err },
		"raise": func(ctx context.Context) error {
			return g.Hold.(driver.TokenRaiser).RaiseToken(ctx, uint64(time.Now().Add(time.Hour).UnixMicro()))
		},
		"release": func(ctx context.Context) error { return g.Hold.Release(ctx, 0) },
		"inspect": func(ctx context.Context) error { _, err := b.Inspect(ctx, "x"); return err },
		"break":   func(ctx context.Context) error { _, err := locktest.Break(ctx, b, "x"); return err },
		"list": func(ctx context.Context) error {
			return locktest.Lists(ctx, b)
		},
		"check":  func(ctx context.Context) error { _, err := b.Check(ctx); return err },
		"notify": func(ctx context.Context) error { _, err := b.Notify(ctx, "x", func() {}); return err },
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			began := time.Now()
			require.ErrorIs(t, ask(ctx), context.DeadlineExceeded)
			assert.Less(t, time.Since(began), 20*time.Second, "the driver is patient for a minute")
			began = time.Now()
			err := ask(t.Context())
			require.ErrorIs(t, err, driver.ErrUnavailable)
			assert.Less(t, time.Since(began), 30*time.Second)
			assert.NotErrorIs(t, err, context.DeadlineExceeded)
			assert.NotErrorIs(t, err, context.Canceled)
			assert.ErrorContains(t, err, s.proxies[0].Addr())
		})
	}
}

// A quorum that has subscribed is enough at once. So is, after a while, a node of each quorum that may be
// released. Neither that nor Close waits for the driver.
func TestNotifyAndCloseWithHungNodes(t *testing.T) {
	const patient = 20 * time.Second // on a slow machine; the driver waits for a minute
	for _, c := range []struct {
		nodes, hung int
		ok          bool
	}{{5, 2, true}, {2, 1, true}, {3, 2, false}} {
		t.Run(fmt.Sprintf("%d of %d", c.hung, c.nodes), func(t *testing.T) {
			t.Parallel()
			s := durable(t, c.nodes)
			s.patient = true
			b := s.through(t, redlock.Options{})
			s.proxies[:c.hung].Set(lab.Drop)
			var woken atomic.Bool
			began := time.Now()
			stop, err := b.Notify(t.Context(), "x", func() { woken.Store(true) })
			assert.Less(t, time.Since(began), patient)
			if !c.ok {
				require.ErrorIs(t, err, driver.ErrUnavailable)
				return
			}
			require.NoError(t, err)
			defer stop()
			s.servers[c.hung:].MustDo(t, "PUBLISH", redisnode.WakeChannel("x"), "")
			within(t, 30*time.Second, "it is woken", woken.Load)
			began = time.Now()
			_ = b.Close()
			assert.Less(t, time.Since(began), patient)
		})
	}
}

// Another program at the addresses, or a proxy that is broken: no answer but a
// script's own is a vote, and trying again is no use.
func TestAnswersOfNoScriptAreNoVotes(t *testing.T) {
	ask := func(reply string, fencing bool) error {
		var clients []*redis.Client
		for range 3 {
			clients = append(clients, newClient(t, &redis.Options{Addr: lab.StartFakeRedis(t, reply).Addr(), Protocol: 2,
				MaxRetries: -1}))
		}
		b := on(t, redlock.Options{NoRestartGuard: true, Fencing: fencing}, clients...)
		_, err := locktest.Ask(t.Context(), b, request("x", 10*time.Second))
		return err
	}
	const one = "*1\r\n"
	strange := []string{
		":1\r\n", "+OK\r\n", "$1\r\n1\r\n", "*0\r\n", "*2\r\n:1\r\n:1\r\n", one + ":-1\r\n", one + ":0\r\n", one + "*0\r\n",
		one + "*2\r\n:99\r\n:0\r\n", one + "*2\r\n:1\r\n:-1\r\n", one + "*2\r\n:3\r\n:5\r\n", one + "*2\r\n:2\r\n:9\r\n",
		one + "*3\r\n:2\r\n:9\r\n:9\r\n", one + "*3\r\n:2\r\n:-9\r\n+a\r\n", one + "*3\r\n:2\r\n:9\r\n+12345678901234567\r\n",
		one + "*3\r\n:1\r\n:1\r\n+lowered\r\n", one + "*2\r\n:5\r\n:0\r\n", one + "*2\r\n:10\r\n:0\r\n",
		one + ":9007199254740993\r\n", one + "*7\r\n:1\r\n:1\r\n:1\r\n:1\r\n:1\r\n:1\r\n*0\r\n",
	}
	for fencing, also := range map[bool][]string{
		true:  {one + "*2\r\n:1\r\n:0\r\n"},
		false: {one + ":7\r\n", one + "*2\r\n:1\r\n:7\r\n", one + "*3\r\n:1\r\n:1\r\n+raised\r\n"},
	} {
		for _, reply := range append(also, strange...) {
			err := ask(reply, fencing)
			require.ErrorContains(t, err, "a reply that this script does not give", reply)
			assert.NotErrorIs(t, err, driver.ErrUnavailable, reply)
		}
	}
	require.NoError(t, ask(one+":1\r\n", false), "as a free lock answers")
	require.ErrorContains(t, ask("$9223372036854775807\r\n", false), "cannot be read", "the driver panics at it")
}
