package locker_test

import (
	"context"
	"errors"
	"io"
	"iter"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/locktest"
	"github.com/golockers/locker/lockertest"
	"github.com/golockers/locker/memory"
)

func TestAbilitiesAreAskedWithPrefixAndTokenBase(t *testing.T) {
	locks := newScripted("prompt")
	c := locktest.Client(t, locks, &locker.Options{Prefix: "app/", TokenBase: 100})
	all := locktest.Client(t, locks, nil)
	for _, name := range []string{"app/job/1", "app/job/2", "app/other", "job/3"} {
		locktest.Lock(t, all, name)
	}
	var names []string
	var state locker.State
	for st, err := range c.List(t.Context(), "job/") {
		require.NoError(t, err)
		assert.Greater(t, st.Token, uint64(100))
		names, state = append(names, st.Name), st
	}
	assert.ElementsMatch(t, []string{"job/1", "job/2"}, names)
	for _, err := range c.List(t.Context(), "job/") {
		require.NoError(t, err)
		break
	}

	require.NoError(t, c.Break(t.Context(), state))
	st, err := c.Inspect(t.Context(), state.Name)
	require.NoError(t, err)
	assert.Equal(t, locker.State{Name: state.Name}, st)
	broken := locks.count("operate")
	require.NoError(t, c.Break(t.Context(), st), "nobody holds it")
	st.Held = true
	require.ErrorIs(t, c.Break(t.Context(), st), locker.ErrInvalid)
	assert.Equal(t, broken, locks.count("operate"))

	found, err := c.Check(t.Context())
	require.NoError(t, err)
	assert.Equal(t, "ok", found[0].Severity.String())

	l := locktest.Lock(t, c, state.Name)
	require.NoError(t, l.RaiseToken(t.Context(), 150))
	require.NoError(t, l.RaiseToken(t.Context(), 99), "every token here is greater")
	require.ErrorIs(t, l.RaiseToken(t.Context(), 100+locker.MaxToken), locker.ErrInvalid, "no token is greater")
	require.NoError(t, l.Unlock(t.Context()))
	assert.ErrorIs(t, l.RaiseToken(t.Context(), 200), locker.ErrUnlocked)
	l = locktest.Lock(t, c, state.Name)
	token, _ := l.Token()
	assert.EqualValues(t, 151, token)
	var req driver.Request
	require.True(t, l.As(&req))
	assert.Equal(t, "app/"+l.Name(), req.Name)
	assert.False(t, l.As(new(int)))
}

func TestAnAbilityThatIsMissingIsUnsupported(t *testing.T) {
	c := locktest.Must(locker.New(claiming{memory.New(), locker.Guarantees{}}, nil))
	l, _, err := lockertest.NewLease("job", driver.Grant{})
	require.NoError(t, err)
	_, inspect := c.Inspect(t.Context(), "job")
	_, check := c.Check(t.Context())
	_, minHold := c.Lock(t.Context(), "other", locker.MinHold(time.Minute))
	_, shared := c.TryLock(t.Context(), "job", locker.Shared())
	for _, err := range []error{
		inspect, check, minHold, shared, c.Break(t.Context(), locker.State{Name: "job"}), locktest.Lists(t.Context(), c),
		l.RaiseToken(t.Context(), 1),
	} {
		assert.ErrorIs(t, err, errors.ErrUnsupported)
		assert.ErrorAs(t, err, new(*locker.Error))
	}
	require.ErrorIs(t, locker.Require(c, locker.Guarantees{Shared: locker.SharingTokenless}), errors.ErrUnsupported)
	_, err = c.Inspect(t.Context(), "")
	require.ErrorContains(t, err, "the name is empty")
	require.NoError(t, c.Close())

	c = locktest.Must(locker.New(newScripted(), nil))
	require.NoError(t, c.Close())
	_, inspect = c.Inspect(t.Context(), "job")
	_, check = c.Check(t.Context())
	for _, err := range []error{inspect, check, locktest.Lists(t.Context(), c),
		c.Break(t.Context(), locker.State{Name: "job"})} {
		assert.ErrorIs(t, err, locker.ErrClosed)
	}
}

// A driver that knows no contexts kept operators waiting for as long as it liked.
func TestOperatorsReturnWithTheirContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScripted()
		c := locktest.Client(t, s, nil)
		l := locktest.Lock(t, c, "job")
		s.script("operate", "1m")
		for what, call := range map[string]func(ctx context.Context) error{
			"inspect": func(ctx context.Context) error { _, err := c.Inspect(ctx, "job"); return err },
			"break": func(ctx context.Context) error {
				return c.Break(ctx, locker.State{Name: "job", Held: true, Holder: "memory 7"})
			},
			"check": func(ctx context.Context) error { _, err := c.Check(ctx); return err },
			"raise": func(ctx context.Context) error { return l.RaiseToken(ctx, 7) },
			"list":  func(ctx context.Context) error { return locktest.Lists(ctx, c) },
		} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			began := time.Now()
			require.ErrorIs(t, call(ctx), context.DeadlineExceeded, what)
			assert.LessOrEqual(t, time.Since(began), 1100*time.Millisecond, what)
			cancel()
		}
		time.Sleep(2 * time.Minute)
	})
}

// slowList finds a name each second, whatever becomes of the context, and ends with an error.
type slowList struct {
	driver.Backend
	driver.Operator
	end error
}

func (s slowList) List(_ context.Context, prefix string) iter.Seq2[locker.State, error] {
	return func(yield func(locker.State, error) bool) {
		for i := range 5 {
			time.Sleep(time.Second)
			if !yield(locker.State{Name: prefix + strconv.Itoa(i), Held: true}, nil) {
				return
			}
		}
		if s.end != nil {
			yield(locker.State{}, s.end)
		}
	}
}

// What was found of a service that is large, or breaks off, is shown, and that it is not all.
func TestListShowsWhatItHasFound(t *testing.T) {
	for name, test := range map[string]struct {
		within time.Duration
		end    error
		found  int
		is     error
	}{
		"all":        {time.Hour, nil, 5, nil},
		"breaks off": {time.Hour, io.ErrUnexpectedEOF, 5, io.ErrUnexpectedEOF},
		"too slow":   {2500 * time.Millisecond, nil, 2, context.DeadlineExceeded},
		"at once":    {time.Nanosecond, nil, 0, context.DeadlineExceeded},
	} {
		synctest.Test(t, func(t *testing.T) {
			m := memory.New()
			c := locktest.Client(t, slowList{m, m, test.end}, &locker.Options{Prefix: "app/"})
			ctx, cancel := context.WithTimeout(t.Context(), test.within)
			defer cancel()
			began := time.Now()
			found, err := locktest.List(ctx, c, "job/")
			require.ErrorIs(t, err, test.is, name)
			assert.Len(t, found, test.found, name)
			for i, st := range found {
				assert.Equal(t, "job/"+strconv.Itoa(i), st.Name, name)
			}
			assert.LessOrEqual(t, time.Since(began), min(test.within, 5*time.Second)+100*time.Millisecond, name)
			time.Sleep(time.Minute)
		})
	}
}
