package etcd_test

import (
	"math"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/golockers/locker"
	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/locktest"
)

const far = 1 << 50

func tokenOf(t testing.TB, l *locker.Lease) uint64 {
	token, ok := l.Token()
	require.True(t, ok)
	return token
}

// What every backend does is in conformance's check.
func TestRaisedTokens(t *testing.T) {
	s := parallelScene(t, 1)
	ctx := t.Context()
	c := client(t, s.Addrs(), time.Minute)
	raiser := locktest.Lock(t, c, "n")
	own := tokenOf(t, raiser)
	require.NoError(t, raiser.RaiseToken(ctx, own), "every later one is greater anyway")
	assert.Len(t, all(t, s.admin), 1, "nothing is kept then")
	require.NoError(t, raiser.RaiseToken(ctx, far))
	listed := map[string]uint64{}
	for e, err := range c.List(ctx, "") {
		require.NoError(t, err)
		listed[e.Name] = e.Token
	}
	assert.Equal(t, map[string]uint64{"n": own}, listed, "the holder keeps its own")
	require.ErrorIs(t, raiser.RaiseToken(ctx, math.MaxInt64), driver.ErrInvalid)
	_, err := locktest.Break(ctx, c, "n")
	require.NoError(t, err)
	require.ErrorIs(t, raiser.RaiseToken(ctx, 2*far), driver.ErrLost)
	_ = raiser.Unlock(ctx)
	next := locktest.Lock(t, c, "n")
	token := tokenOf(t, next)
	assert.Greater(t, token, uint64(far))
	assert.Less(t, token, uint64(2*far), "by whom it was taken from")
	st, err := c.Inspect(ctx, "n")
	require.NoError(t, err)
	assert.Equal(t, token, st.Token)
	other, err := c.Lock(ctx, "n/") // not the same name
	require.NoError(t, err)
	assert.Less(t, tokenOf(t, other), uint64(far))
}

// Raising is repeated when its answer is lost, and by several at once: the highest counts.
func TestRaiseIsRepeated(t *testing.T) {
	s := parallelScene(t, 1)
	ctx := t.Context()
	b := backend(
		t,
		[]string{s.Nodes[0].Addr(), s.Nodes[0].Addr()},
		loseAnswer(func(req *etcdserverpb.TxnRequest) bool {
			return len(req.Success) == 1 && string(req.Success[0].GetRequestPut().GetKey()) == queue("n")+"~/tokens"
		}),
	)
	g := locktest.Acquire(t, b, request("n", time.Minute, false))
	var at sync.WaitGroup
	for i := range 8 {
		at.Go(func() { assert.NoError(t, g.Hold.(driver.TokenRaiser).RaiseToken(ctx, far+uint64(i))) })
	}
	at.Wait()
	require.NoError(t, g.Hold.Release(ctx, 0))
	assert.Len(t, all(t, s.admin), 1, "one key stays")
	g2 := locktest.Acquire(t, b, request("n", time.Minute, true))
	assert.Greater(t, g2.Token, uint64(far+7))
	assert.Less(t, g2.Token, uint64(far+1000))
}
