package redlock_test

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/internal/locktest"
	"github.com/golockers/locker/internal/redisnode"
	"github.com/golockers/locker/redlock"
)

// nodes are some servers with a proxy before each.
type nodes struct {
	patient bool // the driver waits longer than this package does
	servers servers
	proxies proxies
}

type (
	servers []*lab.Redis
	proxies []*lab.Proxy
)

func each[T any](all []T, do func(T)) {
	for _, one := range all {
		do(one)
	}
}

// What all do.

func (all servers) MustDo(t testing.TB, command ...any) {
	t.Helper()
	each(all, func(r *lab.Redis) { r.MustDo(t, command...) })
}

func (all proxies) Set(m lab.Mode)      { each(all, func(p *lab.Proxy) { p.Set(m) }) }
func (all proxies) Requests(m lab.Mode) { each(all, func(p *lab.Proxy) { p.Requests(m) }) }
func (all proxies) Replies(m lab.Mode)  { each(all, func(p *lab.Proxy) { p.Replies(m) }) }

func start(t testing.TB, n int, opts ...lab.Option) *nodes {
	t.Helper()
	s := &nodes{}
	for range n {
		r := lab.StartRedis(t, opts...)
		s.servers = append(s.servers, r)
		s.proxies = append(s.proxies, lab.StartProxy(t, r.Addr()))
	}
	return s
}

// durable is for servers that vote from the first moment on.
func durable(t testing.TB, n int) *nodes { return start(t, n, lab.WithAppendOnly()).proven(t) }

// proven makes servers that write all to disk look as if they had kept the data
// of a run before.
func (s *nodes) proven(t testing.TB) *nodes {
	t.Helper()
	s.servers.MustDo(t, "SET", redisnode.RunsKey, " before")
	return s
}

func (s *nodes) clients(t interface{ Cleanup(func()) }, addr func(i int) string) []*redis.Client {
	var cs []*redis.Client
	wait := time.Second
	if s.patient {
		wait = time.Minute
	}
	for i := range s.servers {
		cs = append(cs, newClient(t, &redis.Options{Addr: addr(i), MaxRetries: -1, DialTimeout: wait, ReadTimeout: wait}))
	}
	return cs
}

// newClient returns a client that is closed with the test.
func newClient(t interface{ Cleanup(func()) }, opts *redis.Options) *redis.Client {
	c := redis.NewClient(opts)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// slack is a NodeTimeout for tests in which no node is slow on purpose: the machine may be, and the disk that all nodes
// write to. hasty is for those that wait for one that is.
const (
	slack = 2 * time.Second
	hasty = 300 * time.Millisecond
)

// backend is straight to the servers, through is by way of the proxies.
func (s *nodes) backend(t testing.TB, o redlock.Options) *redlock.Backend {
	return s.connect(t, o, func(i int) string { return s.servers[i].Addr() })
}

func (s *nodes) through(t testing.TB, o redlock.Options) *redlock.Backend {
	return s.connect(t, o, func(i int) string { return s.proxies[i].Addr() })
}

func (s *nodes) connect(t testing.TB, o redlock.Options, addr func(i int) string) *redlock.Backend {
	t.Helper()
	return on(t, o, s.clients(t, addr)...)
}

// on returns a Backend that is closed with the test.
func on(t testing.TB, o redlock.Options, clients ...*redis.Client) *redlock.Backend {
	t.Helper()
	if o.NodeTimeout == 0 {
		o.NodeTimeout = slack
	}
	if o.MaxTTL == 0 {
		o.MaxTTL = time.Minute
	}
	b, err := redlock.New(clients, &o)
	require.NoError(t, err)
	t.Cleanup(func() { _ = b.Close() })
	return b
}

// value returns what a node has under a lock's key, without going through a backend.
func (s *nodes) value(t testing.TB, i int, name string) string {
	v := s.servers[i].MustDo(t, "GET", redisnode.LockKey(name))
	text, _ := v.(string)
	return text
}

// holders counts the nodes that have a key for name.
func (s *nodes) holders(t testing.TB, name string) int {
	n := 0
	for i, r := range s.servers {
		if r.Running() && s.value(t, i, name) != "" {
			n++
		}
	}
	return n
}

// everywhere waits until all nodes have the lock: renewals give it to those
// that were too slow for the acquire.
func (s *nodes) everywhere(t testing.TB, g driver.Grant, name string) {
	t.Helper()
	within(t, 30*time.Second, "all nodes have it", func() bool {
		if s.holders(t, name) == len(s.servers) {
			return true
		}
		_, err := g.Hold.Renew(t.Context())
		return err == nil && s.holders(t, name) == len(s.servers)
	})
}

func request(name string, ttl time.Duration) driver.Request {
	var raw [20]byte
	_, _ = rand.Read(raw[:])
	return driver.Request{Name: name, Owner: hex.EncodeToString(raw[:]), Label: "test", TTL: ttl,
		Lost: func() {}}
}

func acquire(t testing.TB, b *redlock.Backend, name string, ttl time.Duration) driver.Grant {
	t.Helper()
	g := locktest.Acquire(t, b, request(name, ttl))
	return g
}

// warm has every node looked at, on a machine that may be busy.
func warm(t testing.TB, b *redlock.Backend) {
	t.Helper()
	within(t, 30*time.Second, "it is served", func() bool {
		g, err := locktest.Ask(t.Context(), b, request("warm", time.Minute))
		return err == nil && g.Hold.Release(t.Context(), 0) == nil
	})
}

func release(t testing.TB, g driver.Grant) {
	t.Helper()
	require.NoError(t, g.Hold.Release(context.WithoutCancel(t.Context()), 0))
}

var within = locktest.Eventually

// refused asks once, and fails unless another holds it: too few answers in time
// are no refusal.
func refused(t testing.TB, b *redlock.Backend, name string, ttl time.Duration) {
	t.Helper()
	_, err := locktest.Ask(t.Context(), b, request(name, ttl))
	require.ErrorIs(t, err, driver.ErrHeld)
	require.False(t, errors.Is(err, driver.ErrUnavailable), fmt.Sprint(err))
}
