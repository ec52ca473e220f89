package locker_test

import (
	"context"
	"errors"
	"iter"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
)

// able is a fake with every optional ability.
type able struct {
	*fake
	raised  uint64
	settled func(n int) error
	asked   int
	broken  []string
}

func (f *able) Guarantees() locker.Guarantees {
	g := f.fake.Guarantees()
	g.MaxMinHold = time.Hour
	return g
}

func (f *able) Acquire(ctx context.Context, req locker.Request) (locker.Grant, error) {
	g, err := f.fake.Acquire(ctx, req)
	if g.Hold != nil {
		g.Hold = &ableHold{g.Hold.(*fakeHold), f}
	}
	return g, err
}

func (*able) Inspect(context.Context, string) (locker.State, error) { return locker.State{}, nil }

func (*able) List(_ context.Context, prefix string) iter.Seq2[locker.State, error] {
	return func(yield func(locker.State, error) bool) {
		for _, name := range []string{"app/job/1", "app/job/2", "app/other", "job/3"} {
			if strings.HasPrefix(name, prefix) && !yield(locker.State{Name: name, Held: true, Token: 7}, nil) {
				return
			}
		}
	}
}

func (f *able) Break(_ context.Context, st locker.State) error {
	f.broken = append(f.broken, st.Name+" of "+st.Holder)
	return nil
}

func (*able) Check(context.Context) ([]locker.Finding, error) {
	return []locker.Finding{{Severity: locker.SeverityWarning, What: "disk"}}, nil
}

type ableHold struct {
	*fakeHold
	f *able
}

func (h *ableHold) RaiseToken(_ context.Context, token uint64) error {
	h.f.raised = token
	return nil
}

func (h *ableHold) Undo(ctx context.Context) error {
	h.f.asked++
	if err := h.f.settled(h.f.asked); err != nil {
		return err
	}
	if err := h.Release(ctx); !errors.Is(err, locker.ErrLost) {
		return err
	}
	return nil
}

func TestAbilitiesAreAskedWithPrefixAndTokenBase(t *testing.T) {
	f := &able{fake: newFake()}
	c := closing(t, locker.New(f, &locker.Options{Prefix: "app/", TokenBase: 100}))
	var names []string
	for e, err := range c.List(t.Context(), "job/") {
		require.NoError(t, err)
		assert.Equal(t, uint64(107), e.Token)
		names = append(names, e.Name)
	}
	assert.Equal(t, []string{"job/1", "job/2"}, names)
	for _, err := range c.List(t.Context(), "job/") {
		require.NoError(t, err)
		break
	}

	held := locker.State{Name: "job", Held: true, Holder: "somebody"}
	require.NoError(t, c.Break(t.Context(), held))
	require.NoError(t, c.Break(t.Context(), locker.State{Name: "free"}))
	assert.Equal(t, []string{"app/job of somebody"}, f.broken)
	held.Holder = ""
	require.ErrorIs(t, c.Break(t.Context(), held), locker.ErrInvalid)

	found, err := c.Check(t.Context())
	require.NoError(t, err)
	assert.Equal(t, "warning", found[0].Severity.String())

	l, err := c.Lock(t.Context(), "job")
	require.NoError(t, err)
	require.NoError(t, l.RaiseToken(t.Context(), 150))
	assert.Equal(t, uint64(50), f.raised)
	require.NoError(t, l.RaiseToken(t.Context(), 100), "every token here is greater")
	assert.Equal(t, uint64(50), f.raised)
	require.NoError(t, l.Unlock(t.Context()))
	assert.ErrorIs(t, l.RaiseToken(t.Context(), 200), locker.ErrUnlocked)
}

// listError is the error with which List ends.
func listError(ctx context.Context, c *locker.Client) (err error) {
	for _, err = range c.List(ctx, "") {
	}
	return err
}

func TestAnAbilityThatIsMissingIsUnsupported(t *testing.T) {
	c, l := lease(t, newFake())
	_, inspect := c.Inspect(t.Context(), "job")
	broken := c.Break(t.Context(), locker.State{Name: "job"})
	_, check := c.Check(t.Context())
	_, minHold := c.Lock(t.Context(), "other", locker.MinHold(time.Minute))
	for _, err := range []error{
		inspect, broken, check, minHold, l.RaiseToken(t.Context(), 1),
		listError(t.Context(), c),
	} {
		assert.ErrorIs(t, err, errors.ErrUnsupported)
		assert.ErrorAs(t, err, new(*locker.Error))
	}
	_, err := c.Inspect(t.Context(), "")
	assert.ErrorContains(t, err, "the name is empty")
	require.NoError(t, l.Unlock(t.Context()))
	require.NoError(t, c.Close())
}

// A session would keep alive what is left: the engine asks until it is settled.
func TestUndoIsAskedUntilItIsSettled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &able{fake: newFake()}
		began := time.Now()
		f.settled = func(int) error {
			if time.Since(began) < 100*ttl {
				return errDown
			}
			return nil
		}
		f.before = func(n int, _ context.Context, req locker.Request) (locker.Grant, error, bool) {
			return locker.Grant{Hold: f.hold(req)}, errDown, n == 1
		}
		c := locker.New(f, nil)
		_, err := c.TryLock(t.Context(), "job")
		require.ErrorIs(t, err, locker.ErrUnavailable)
		time.Sleep(99 * ttl)
		assert.Equal(t, 1, c.Stats().Pending)
		time.Sleep(2 * ttl)
		assert.Zero(t, c.Stats().Pending)
		assert.Equal(t, uint64(1), c.Stats().TakenBack)
		require.NoError(t, c.Close())
	})
}

func TestMinHoldKeepsTheLockOfOneThatUnlocksOrCloses(t *testing.T) {
	for _, end := range []func(*testing.T, *locker.Client, *locker.Lease){
		func(t *testing.T, _ *locker.Client, l *locker.Lease) { require.NoError(t, l.Unlock(t.Context())) },
		func(t *testing.T, c *locker.Client, _ *locker.Lease) { require.NoError(t, c.Close()) },
		func(t *testing.T, c *locker.Client, l *locker.Lease) {
			require.NoError(t, l.Unlock(t.Context()))
			require.NoError(t, c.Close())
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := &able{fake: newFake(), settled: func(int) error { return nil }}
			c := locker.New(f, &locker.Options{TTL: ttl})
			l, err := c.Lock(t.Context(), "job", locker.MinHold(5*time.Minute))
			require.NoError(t, err)
			assert.Equal(t, 5*time.Minute, f.requests[0].MinHold)
			time.Sleep(time.Minute)
			require.NoError(t, l.Err())
			began := time.Now()
			end(t, c, l)
			assert.Less(t, time.Since(began), time.Millisecond)
			require.Error(t, l.Err())
			time.Sleep(4*time.Minute - time.Second)
			assert.Zero(t, f.released(), "before MinHold is over")
			time.Sleep(time.Minute)
			require.NoError(t, c.Close())
		})
	}
}

func TestMinHoldIsBounded(t *testing.T) {
	c := closing(t, locker.New(&able{fake: newFake()}, nil))
	for _, opts := range [][]locker.Option{
		{locker.MinHold(-time.Second)},
		{locker.MinHold(2 * time.Hour)},
		{locker.MinHold(time.Minute), locker.MaxHold(30 * time.Second)},
	} {
		_, err := c.TryLock(t.Context(), "job", opts...)
		assert.ErrorIs(t, err, locker.ErrInvalid)
	}
}

// Nobody was told that it holds, so nobody has run the job: what an unknown outcome
// may have left goes at once, MinHold or not.
func TestMinHoldDoesNotKeepWhatNobodyHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &able{fake: newFake(), settled: func(int) error { return nil }}
		f.before = func(_ int, _ context.Context, req locker.Request) (locker.Grant, error, bool) {
			g, err := f.acquire(req) // and the answer is lost
			require.NoError(t, err)
			return g, errDown, true
		}
		c := closing(t, locker.New(f, &locker.Options{TTL: ttl}))
		_, err := c.TryLock(t.Context(), "job", locker.MinHold(time.Hour))
		require.ErrorIs(t, err, locker.ErrUnavailable)
		time.Sleep(time.Second)
		assert.Empty(t, f.owner("job"))
	})
}
