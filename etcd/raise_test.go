package etcd_test

import (
	"fmt"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/golockers/locker"
)

const far = 1 << 50

func tokenOf(t testing.TB, l *locker.Lease) uint64 {
	token, ok := l.Token()
	require.True(t, ok)
	return token
}

// Whoever holds after the tokens were raised has a greater one, in whatever way it came to
// hold: at once, having waited since before, by another client, after an expiry or a Break.
func TestRaisedTokens(t *testing.T) {
	t.Parallel()
	for _, members := range []int{1, 3} {
		t.Run(fmt.Sprint(members), func(t *testing.T) {
			t.Parallel()
			s := newScene(t, members)
			ctx := t.Context()
			clients := []*locker.Client{client(t, s.Addrs(), time.Minute), client(t, s.Addrs(), time.Minute)}
			raiser, err := clients[0].Lock(ctx, "n")
			require.NoError(t, err)
			waits := lockLater(ctx, clients[1], "n")
			s.queued(t, "n", 2)
			s.watched(t, 1)
			own := tokenOf(t, raiser)
			require.NoError(t, raiser.RaiseToken(ctx, own), "every later one is greater anyway")
			assert.Len(t, all(t, s.admin), 2, "nothing is kept then")
			require.NoError(t, raiser.RaiseToken(ctx, far))
			require.NoError(t, raiser.RaiseToken(ctx, far-5), "lower: nothing")
			inspect := func(c *locker.Client) locker.State {
				st, err := c.Inspect(ctx, "n")
				require.NoError(t, err)
				listed := map[string]locker.State{}
				for e, err := range c.List(ctx, "") {
					require.NoError(t, err)
					listed[e.Name] = e.State
				}
				require.Len(t, listed, 1)
				assert.Equal(t, st.Token, listed["n"].Token)
				return st
			}
			assert.Equal(t, own, inspect(clients[1]).Token, "the holder keeps its own")
			nobody(t, waits)
			require.NoError(t, raiser.Unlock(ctx))
			require.ErrorIs(t, raiser.RaiseToken(ctx, far+100), locker.ErrUnlocked)

			last := uint64(far)
			for i, l := 0, s.get(t, waits, 5*time.Second).lease; i < 6; i++ {
				token := tokenOf(t, l)
				require.Greater(t, token, last)
				assert.Equal(t, token, inspect(clients[i%2]).Token)
				last = token
				switch i {
				case 1:
					last += 1000
					require.NoError(t, l.RaiseToken(ctx, last))
				case 2:
					require.ErrorIs(t, l.RaiseToken(ctx, math.MaxInt64), locker.ErrInvalid)
				}
				if i == 3 {
					_, err = clients[0].Break(ctx, "n")
					require.NoError(t, err)
					require.ErrorIs(t, l.RaiseToken(ctx, last+1_000_000), locker.ErrLost)
					_ = l.Unlock(ctx)
				} else {
					require.NoError(t, l.Unlock(ctx))
				}
				if i%2 == 0 {
					l, err = clients[(i/2)%2].TryLock(ctx, "n")
				} else {
					l, err = clients[i%2].Lock(ctx, "n")
				}
				require.NoError(t, err)
			}
			other, err := clients[0].Lock(ctx, "n/") // not the same name
			require.NoError(t, err)
			assert.Less(t, tokenOf(t, other), uint64(far))
		})
	}
}

// A holder whose key is gone raises nothing, and neither does a copy of its request that
// arrives when the next one holds.
func TestRaiseOfWhoDoesNotHoldAnyMoreDoesNothing(t *testing.T) {
	t.Parallel()
	s := newScene(t, 1)
	ctx := t.Context()
	var network laggard
	b, next := backend(t, s.Addrs(), network.config), backend(t, s.Addrs())
	g, err := b.Acquire(ctx, request("n", time.Minute, false))
	require.NoError(t, err)
	network.keep(0, "~/tokens")
	limited := within(t, 300*time.Millisecond)
	require.Error(t, g.Hold.(locker.TokenRaiser).RaiseToken(limited, far))
	require.NoError(t, g.Hold.Release(ctx))
	g2, err := next.Acquire(ctx, request("n", time.Minute, false))
	require.NoError(t, err)
	require.NoError(t, network.late()) // now it arrives
	require.ErrorIs(t, g.Hold.(locker.TokenRaiser).RaiseToken(ctx, far), locker.ErrLost)
	assert.Len(t, all(t, s.admin), 1, "nothing was raised")
	require.NoError(t, g2.Hold.Release(ctx))
}

// Raising is repeated when its answer is lost, and by several at once: the highest counts.
func TestRaiseIsRepeated(t *testing.T) {
	t.Parallel()
	s := newScene(t, 1)
	ctx := t.Context()
	b := backend(
		t,
		[]string{s.Nodes[0].Addr(), s.Nodes[0].Addr()},
		loseAnswer(func(req *etcdserverpb.TxnRequest) bool {
			return len(req.Success) == 1 && string(req.Success[0].GetRequestPut().GetKey()) == queue("n")+"~/tokens"
		}),
	)
	g, err := b.Acquire(ctx, request("n", time.Minute, false))
	require.NoError(t, err)
	var at sync.WaitGroup
	for i := range 8 {
		at.Go(func() { assert.NoError(t, g.Hold.(locker.TokenRaiser).RaiseToken(ctx, far+uint64(i))) })
	}
	at.Wait()
	require.NoError(t, g.Hold.Release(ctx))
	assert.Len(t, all(t, s.admin), 1, "one key stays")
	g2, err := b.Acquire(ctx, request("n", time.Minute, true))
	require.NoError(t, err)
	assert.Greater(t, g2.Token, uint64(far+7))
	assert.Less(t, g2.Token, uint64(far+1000))
}
