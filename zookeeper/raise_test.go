package zookeeper_test

import (
	"fmt"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/internal/locktest"
	"github.com/golockers/locker/zookeeper"
)

const far = 1 << 50

func tokenOf(t testing.TB, l *locker.Lease) uint64 {
	token, ok := l.Token()
	require.True(t, ok)
	return token
}

// What every backend does is in conformance's check.
func testRaisedTokens(t *testing.T, z *lab.ZooKeeper) {
	ctx := within(t, time.Minute)
	c := newClient(t, []string{z.Addr()}, zookeeper.Options{})
	raiser := locktest.Lock(t, c, "raised")
	own := tokenOf(t, raiser)
	require.NoError(t, raiser.RaiseToken(ctx, own), "every later one is greater anyway")
	require.NoError(t, raiser.RaiseToken(ctx, far<<10))
	st, err := c.Inspect(ctx, "raised")
	require.NoError(t, err)
	assert.NotEmpty(t, st.Label)
	assert.Equal(t, own, st.Token, "the holder keeps its own")
	require.ErrorIs(t, raiser.RaiseToken(ctx, math.MaxInt64), driver.ErrInvalid)
	_, err = locktest.Break(ctx, c, "raised")
	require.NoError(t, err)
	require.Error(t, raiser.RaiseToken(ctx, far<<11))
	_ = raiser.Unlock(ctx)
	next := locktest.Lock(t, c, "raised")
	token := tokenOf(t, next)
	assert.Greater(t, token, uint64(far<<10))
	assert.Less(t, token, uint64(far<<11), "by whom it was taken from")
	require.NoError(t, next.Unlock(ctx))
	for e, err := range c.List(ctx, "raised") {
		t.Error("nobody holds it", e.Name, err)
	}
}

// The next in line learns of it whenever the tokens are raised: before it looks, between
// its look and its watch, and after.
func testTokensAreRaisedUnderAWaiter(t *testing.T, z *lab.ZooKeeper) {
	holder := newBackend(t, []string{z.Addr()}, zookeeper.Options{})
	next := newBackend(t, []string{z.Addr()}, zookeeper.Options{})
	ctx := within(t, time.Minute)
	for i := range 200 {
		name := fmt.Sprint("under", i)
		g := acquire(t, holder, asking(name, true))
		in := ask(t, next, asking(name, true))
		time.Sleep(time.Duration(i%50) * 50 * time.Microsecond) // any moment will do
		to := g.Token + 1<<32
		require.NoError(t, g.Hold.(driver.TokenRaiser).RaiseToken(ctx, to))
		require.NoError(t, g.Hold.Release(ctx, 0))
		require.ErrorIs(t, g.Hold.(driver.TokenRaiser).RaiseToken(ctx, to), driver.ErrLost)
		g = <-in
		require.Greater(t, g.Token, to, "after %d rounds", i)
		require.NoError(t, g.Hold.Release(ctx, 0))
	}
}

// Several raise at once, and one whose answer is lost again: the highest counts.
func testRaiseIsRepeated(t *testing.T, z *lab.ZooKeeper) {
	p := lab.StartProxy(t, z.Addr())
	b := newBackend(t, []string{p.Addr()}, zookeeper.Options{})
	ctx := within(t, time.Minute)
	g := acquire(t, b, asking("repeated", false))
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() { assert.NoError(t, g.Hold.(driver.TokenRaiser).RaiseToken(ctx, far+uint64(i))) })
	}
	all.Wait()
	p.Replies(lab.Drop)
	require.Error(t, g.Hold.(driver.TokenRaiser).RaiseToken(within(t, 100*time.Millisecond), 2*far))
	p.Replies(lab.Reset)
	p.Replies(lab.Pass)
	require.Eventually(t, func() bool { return g.Hold.(driver.TokenRaiser).RaiseToken(ctx, 2*far) == nil },
		soon, 10*time.Millisecond)
	require.NoError(t, g.Hold.Release(ctx, 0))
	g2 := acquire(t, b, asking("repeated", false))
	assert.Greater(t, g2.Token, uint64(2*far))
	assert.Less(t, g2.Token, uint64(2*far+1000))
	require.NoError(t, g2.Hold.Release(ctx, 0))
}
