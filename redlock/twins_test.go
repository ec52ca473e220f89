package redlock_test

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/locktest"
	"github.com/golockers/locker/redlock"
)

// leads makes a client that leads to wherever target says when it connects.
func leads(t *testing.T, target *atomic.Value) *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: target.Load().(string), MaxRetries: -1,
		Dialer: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, target.Load().(string))
		}})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func targets(addrs ...string) []*atomic.Value {
	var all []*atomic.Value
	for _, a := range addrs {
		v := &atomic.Value{}
		v.Store(a)
		all = append(all, v)
	}
	return all
}

// Two of three nodes are one server, and the other two are a quorum. The twin never votes, and once
// it is known, nothing is granted.
func TestSameServerTwiceOfThreeIsRefused(t *testing.T) {
	s := durable(t, 2)
	at := targets(s.servers[0].Addr(), s.servers[1].Addr(), s.proxies[0].Addr())
	b, err := redlock.New([]*redis.Client{leads(t, at[0]), leads(t, at[1]), leads(t, at[2])},
		&redlock.Options{NodeTimeout: slack})
	require.NoError(t, err)
	defer func() { _ = b.Close() }()
	try := func() error {
		g, err := locktest.Ask(t.Context(), b, request("x", 20*time.Second))
		if err == nil {
			release(t, g)
		}
		return err
	}
	within(t, 30*time.Second, "it is found out", func() bool { return errors.Is(try(), driver.ErrInvalid) })
	for range 50 {
		err := try()
		require.ErrorIs(t, err, driver.ErrInvalid)
		require.Contains(t, err.Error(), "the same server")
	}
	nodes := b.Nodes()
	assert.False(t, nodes[0].Ready && nodes[2].Ready, "one vote could count twice")
	within(t, 30*time.Second, "nothing is left", func() bool { return s.holders(t, "x") == 0 })
}

// Servers that change addresses are not taken for each other's twins for ever.
// They do not have the votes of each other: to this client they are restarted.
func TestServersThatChangePlacesAreNoTwins(t *testing.T) {
	t.Parallel()
	s := durable(t, 3)
	at := targets(s.servers[0].Addr(), s.servers[1].Addr(), s.servers[2].Addr())
	b, err := redlock.New([]*redis.Client{leads(t, at[0]), leads(t, at[1]), leads(t, at[2])},
		&redlock.Options{NodeTimeout: slack, MaxTTL: 2 * time.Second})
	require.NoError(t, err)
	defer func() { _ = b.Close() }()
	all := func() bool {
		g, err := locktest.Ask(t.Context(), b, request("x", 2*time.Second))
		if err != nil {
			return false
		}
		s.everywhere(t, g, "x")
		return g.Hold.Release(t.Context(), 0) == nil
	}
	within(t, 30*time.Second, "all vote", all)
	for _, turn := range [][]int{{1, 0, 2}, {1, 2, 0}} { // two change places, and all three
		var next []string
		for _, i := range turn {
			next = append(next, at[i].Load().(string))
		}
		for i, addr := range next {
			at[i].Store(addr)
		}
		for _, r := range s.servers {
			r.MustDo(t, "CLIENT", "KILL", "TYPE", "normal")
		}
		within(t, 30*time.Second, "all vote again", all)
	}
}
