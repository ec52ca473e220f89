package zookeeper_test

import (
	"fmt"
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

// The next in line finds out that tokens were raised, whenever that happens: before it looks,
// between its look and its watch, or after.
func testTokensAreRaisedUnderAWaiter(t *testing.T, z *lab.ZooKeeper) {
	holder := newBackend(t, []string{z.Addr()}, zookeeper.Options{})
	next := newBackend(t, []string{z.Addr()}, zookeeper.Options{})
	ctx := within(t, time.Minute)
	for i := range 50 {
		name := fmt.Sprint("under", i)
		g := acquire(t, holder, asking(name, true))
		in := ask(t, next, asking(name, true))
		time.Sleep(time.Duration(i) * 50 * time.Microsecond) // any moment will do
		to := g.Token + 1<<32
		require.NoError(t, g.Hold.(driver.TokenRaiser).RaiseToken(ctx, to))
		require.NoError(t, g.Hold.Release(ctx, 0))
		require.ErrorIs(t, g.Hold.(driver.TokenRaiser).RaiseToken(ctx, to), driver.ErrLost)
		g = <-in
		require.Greater(t, g.Token, to, "after %d rounds", i)
		require.NoError(t, g.Hold.Release(ctx, 0))
	}
}

// Several callers raise at once, and one whose answer is lost repeats its request: the highest counts.
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

// A writer raises the tokens while a reader and the next writer wait, and that one has
// watched only the reader.
func testTokensRaisedBeforeReaders(t *testing.T, z *lab.ZooKeeper) {
	const name = "raised-before-readers"
	var clients []*locker.Client
	for range 3 {
		clients = append(clients, newClient(t, []string{z.Addr()}, zookeeper.Options{}))
		warm(t, clients[len(clients)-1], "warm")
	}
	first := locktest.Lock(t, clients[0], name)
	reader := lock(t, clients[1], name, locker.Shared())
	eventuallyLen(t, z.Addr(), name, 2)
	writer := lock(t, clients[2], name)
	eventuallyLen(t, z.Addr(), name, 3)
	token, _ := first.Token()
	require.NoError(t, first.RaiseToken(t.Context(), token+1000))
	require.NoError(t, first.Unlock(t.Context()))
	l := <-reader
	none, ok := l.Token()
	assert.False(t, ok, none)
	require.NoError(t, l.Unlock(t.Context()))
	l = <-writer
	raised, _ := l.Token()
	assert.Greater(t, raised, token+1000)
	require.NoError(t, l.Unlock(t.Context()))
}
