package locker_test

import (
	"context"
	"errors"
	"iter"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
)

// punctual is a fake that keeps its promises about contexts by itself.
type punctual struct{ *fake }

func (punctual) Prompt() bool { return true }

func TestPromptBackendIsCalledByItsCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.before = func(n int, ctx context.Context, req locker.Request) (locker.Grant, error, bool) {
			if n == 1 {
				return locker.Grant{}, nil, false
			}
			g, _ := f.acquire(req)
			<-ctx.Done()
			return locker.Grant{Hold: g.Hold}, errors.Join(ctx.Err(), context.Cause(ctx)), true
		}
		c := locker.New(punctual{f}, &locker.Options{TTL: ttl})

		// An Unlock whose context ends in the middle: the release goes on in
		// the background, and the first answer stays.
		l, err := c.Lock(t.Context(), "job")
		require.NoError(t, err)
		f.release = func(n int, ctx context.Context) error {
			if n == 1 {
				return hang(ctx)
			}
			return nil
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, l.Unlock(ctx), context.DeadlineExceeded)
		err = l.Unlock(t.Context())
		require.ErrorIs(t, err, locker.ErrUnavailable, "the first one's time-out is not this caller's")
		require.NotErrorIs(t, err, context.DeadlineExceeded)
		time.Sleep(time.Second)
		assert.Empty(t, f.owner("job"))

		// A Lock whose context ends in the middle: what it left is taken back.
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = c.Lock(ctx, "job")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		time.Sleep(time.Second)
		assert.Empty(t, f.owner("job"))

		// Close ends a request that is under way.
		errs := make(chan error, 1)
		go func() { _, err := c.Lock(t.Context(), "job"); errs <- err }()
		synctest.Wait()
		start := time.Now()
		require.NoError(t, c.Close())
		assert.Equal(t, start, time.Now())
		require.ErrorIs(t, <-errs, locker.ErrClosed)
		assert.Empty(t, f.owner("job"))
	})
}

// What a caller put into its context reaches the backend, whether or not the context
// can end.
func TestBackendSeesTheCallersValues(t *testing.T) {
	type key struct{}
	f := newFake()
	var seen []any
	f.before = func(_ int, ctx context.Context, _ locker.Request) (locker.Grant, error, bool) {
		seen = append(seen, ctx.Value(key{}))
		return locker.Grant{}, nil, false
	}
	f.release = func(_ int, ctx context.Context) error {
		seen = append(seen, ctx.Value(key{}))
		return nil
	}
	c := closing(t, locker.New(punctual{f}, nil))
	for _, parent := range []context.Context{t.Context(), context.Background()} {
		ctx := context.WithValue(parent, key{}, "span")
		l, err := c.Lock(ctx, "job")
		require.NoError(t, err)
		require.NoError(t, l.Unlock(ctx))
		assert.Equal(t, []any{"span", "span"}, seen)
		seen = nil
	}
}

// deaf is a service whose operators wait for something that no context ends.
type deaf struct {
	*able
	end chan struct{}
}

func (s *deaf) Inspect(context.Context, string) (locker.State, error) {
	<-s.end
	return locker.State{}, nil
}

func (s *deaf) Break(context.Context, locker.State) error { <-s.end; return nil }

func (s *deaf) Check(context.Context) ([]locker.Finding, error) { <-s.end; return nil, nil }

func (s *deaf) List(context.Context, string) iter.Seq2[locker.State, error] {
	return func(yield func(locker.State, error) bool) {
		if yield(locker.State{Name: "first", Held: true}, nil) {
			<-s.end
			yield(locker.State{Name: "too late", Held: true}, nil)
		}
	}
}

func (s *deaf) Acquire(ctx context.Context, req locker.Request) (locker.Grant, error) {
	g, err := s.able.Acquire(ctx, req)
	g.Hold = deafHold{g.Hold, s}
	return g, err
}

type deafHold struct {
	locker.Hold
	s *deaf
}

func (h deafHold) RaiseToken(context.Context, uint64) error { <-h.s.end; return nil }

// A driver that knows no contexts kept operators waiting for as long as it liked.
func TestOperatorsReturnWithTheirContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &deaf{&able{fake: newFake(), settled: func(int) error { return nil }}, make(chan struct{})}
		c, l := lease(t, s)
		var listed []string
		for what, call := range map[string]func(ctx context.Context) error{
			"inspect": func(ctx context.Context) error { _, err := c.Inspect(ctx, "job"); return err },
			"break": func(ctx context.Context) error {
				return c.Break(ctx, locker.State{Name: "job", Held: true, Holder: "x"})
			},
			"check": func(ctx context.Context) error { _, err := c.Check(ctx); return err },
			"raise": func(ctx context.Context) error { return l.RaiseToken(ctx, 7) },
			"list": func(ctx context.Context) (err error) {
				var st locker.State
				for st, err = range c.List(ctx, "") {
					listed = append(listed, st.Name)
				}
				return err
			},
		} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			began := time.Now()
			require.ErrorIs(t, call(ctx), context.DeadlineExceeded, what)
			assert.LessOrEqual(t, time.Since(began), 1100*time.Millisecond, what)
			cancel()
		}
		close(s.end)
		synctest.Wait()
		assert.Equal(t, []string{"first", ""}, listed, "List has ended")
		require.NoError(t, l.Unlock(t.Context()))
		require.NoError(t, c.Close())
	})
}
