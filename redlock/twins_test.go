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

// lead returns a Backend whose clients lead to wherever at says when they connect.
func lead(t *testing.T, o redlock.Options, addrs ...string) (at []atomic.Value, b *redlock.Backend) {
	at = make([]atomic.Value, len(addrs))
	var clients []*redis.Client
	for i, addr := range addrs {
		at[i].Store(addr)
		clients = append(clients, newClient(t, &redis.Options{Addr: addr, MaxRetries: -1,
			Dialer: func(ctx context.Context, network, _ string) (net.Conn, error) {
				return (&net.Dialer{}).DialContext(ctx, network, at[i].Load().(string))
			}}))
	}
	return at, on(t, o, clients...)
}

// Two of three nodes are one server, and the other two are a quorum. The twin never votes, and once
// it is known, nothing is granted.
func TestSameServerTwiceOfThreeIsRefused(t *testing.T) {
	s := durable(t, 2)
	_, b := lead(t, redlock.Options{}, s.servers[0].Addr(), s.servers[1].Addr(), s.proxies[0].Addr())
	try := func() error {
		req := request("x", 20*time.Second)
		req.MinHold = time.Minute
		g, err := locktest.Ask(t.Context(), b, req)
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
	at, b := lead(t, redlock.Options{MaxTTL: 2 * time.Second}, s.servers[0].Addr(), s.servers[1].Addr(), s.servers[2].Addr())
	all := func() bool {
		g, err := locktest.Ask(t.Context(), b, request("x", 2*time.Second))
		if err != nil {
			return false
		}
		for deadline := time.Now().Add(10 * time.Second); s.holders(t, "x") < 3; {
			if _, err := g.Hold.Renew(t.Context()); err != nil || time.Now().After(deadline) {
				return false
			}
		}
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
		s.servers.MustDo(t, "CLIENT", "KILL", "TYPE", "normal")
		within(t, 30*time.Second, "all vote again", all)
	}
}
