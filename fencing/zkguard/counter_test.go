package zkguard_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/fencing"
	"github.com/golockers/locker/fencing/zkguard"
	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/memory"
)

func newCounter(t testing.TB, servers ...string) *zkguard.Counter {
	t.Helper()
	c, err := zkguard.NewCounter(connect(t, servers...), nil)
	require.NoError(t, err)
	return c
}

func TestCounterRisesForAll(t *testing.T) {
	s := newScene(t)
	counters := []*zkguard.Counter{newCounter(t, s.server.Addr()), newCounter(t, s.server.Addr())}
	ctx := within(t, soon)
	var mu sync.Mutex
	var all []uint64
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			for range 10 {
				mu.Lock()
				highest := uint64(0)
				if len(all) > 0 {
					highest = slices.Max(all)
				}
				mu.Unlock()
				n, err := counters[i%2].Next(ctx, []string{"a", "b"}[i/2%2])
				if !assert.NoError(t, err) {
					return
				}
				assert.Greater(t, n, highest, "it was returned before this one was asked for")
				mu.Lock()
				all = append(all, n)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	slices.Sort(all)
	assert.Len(t, slices.Compact(all), 160, "no number twice")
	assert.Equal(t, locker.FencingUnlessRewind, counters[0].Fencing())
	for _, name := range []string{"", strings.Repeat("x", fencing.MaxNameLen+1)} {
		_, err := counters[0].Next(ctx, name)
		require.ErrorIs(t, err, locker.ErrInvalid)
	}
	_, err := counters[0].Next(ctx, strings.Repeat("x", fencing.MaxNameLen))
	require.NoError(t, err)
}

func TestCounterGivesTokensToABackendWithout(t *testing.T) {
	s := newScene(t)
	locks := memory.New()
	var mu sync.Mutex
	var tokens []fencing.Token // in the order in which the lock was held
	var wg sync.WaitGroup
	for range 2 {
		backend := fencing.Wrap(locks, newCounter(t, s.server.Addr()))
		require.Equal(t, locker.FencingUnlessRewind, backend.Guarantees().Fencing)
		client := locker.New(backend, nil)
		defer func() { assert.NoError(t, client.Close()) }()
		for range 8 {
			wg.Go(func() {
				for range 4 {
					err := fencing.Do(within(t, soon), client, "n", func(ctx context.Context) error {
						token, err := fencing.FromContext(ctx)
						mu.Lock()
						defer mu.Unlock()
						tokens = append(tokens, token)
						return err
					})
					assert.NoError(t, err)
				}
			})
		}
	}
	wg.Wait()
	assert.Len(t, tokens, 64)
	assert.IsIncreasing(t, tokens)
}

func TestCounterRisesOverAChangeOfTheLeader(t *testing.T) {
	e := lab.StartZooKeeperEnsemble(t, 3)
	c := newCounter(t, e.Addrs()...)
	var last uint64
	next := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		n, err := c.Next(ctx, "n")
		if err != nil {
			require.ErrorIs(t, err, locker.ErrUnavailable)
			return err
		}
		require.Greater(t, n, last)
		last = n
		return nil
	}
	for range 5 {
		require.Eventually(t, func() bool { return next() == nil }, soon, time.Millisecond)
	}
	epoch := last >> 32
	leader := e.Leader(t)
	leader.Kill()
	require.Eventually(t, func() bool { return next() == nil }, time.Minute, time.Millisecond)
	for range 5 {
		require.NoError(t, next())
	}
	assert.Greater(t, last>>32, epoch, "another leader has another epoch")
}
