package locker_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/memory"
	"github.com/golockers/locker/slots"
)

// untouched fails the test if one of the names is held or waited for.
func untouched(t *testing.T, c *locker.Client, names ...string) {
	t.Helper()
	synctest.Wait()
	for _, name := range names {
		st, err := c.Inspect(t.Context(), name)
		require.NoError(t, err)
		assert.False(t, st.Held, "%s is held", name)
		assert.Zero(t, st.Waiters, "%s is waited for", name)
	}
}

// patient is a context for waits that end, unless a lock was left behind.
func patient(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 24*time.Hour)
	t.Cleanup(cancel)
	return ctx
}

func take(t *testing.T, l locker.Locker, name string) *locker.Lease {
	t.Helper()
	lease, err := l.TryLock(t.Context(), name)
	require.NoError(t, err)
	return lease
}

func TestLockAnyDoesNotWaitWhileOneIsFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := memory.New()
		c, other := closing(t, locker.New(locks, nil)), closing(t, locker.New(locks, nil))
		take(t, other, "a")
		lease, err := slots.LockAny(t.Context(), c, []string{"a", "c", "b"})
		require.NoError(t, err)
		assert.Equal(t, "c", lease.Name(), "the first that is free, in the caller's order")
		untouched(t, other, "b")
		require.NoError(t, lease.Unlock(t.Context()))
	})
}

func TestLockAnyTakesTheFirstThatBecomesFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := memory.New()
		c, other := closing(t, locker.New(locks, nil)), closing(t, locker.New(locks, nil))
		a, b := take(t, other, "a"), take(t, other, "b")
		time.AfterFunc(time.Second, func() { _ = b.Unlock(context.Background()) })
		lease, err := slots.LockAny(patient(t), c, []string{"a", "b", "a"})
		require.NoError(t, err)
		assert.Equal(t, "b", lease.Name())
		require.NoError(t, a.Unlock(t.Context()))
		untouched(t, other, "a")
		require.NoError(t, lease.Err(), "the end of the other waits is none of its own")
	})
}

// All that are waited for become free at the same moment.
func TestLockAnyKeepsExactlyOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := memory.New()
		c, other := closing(t, locker.New(locks, nil)), closing(t, locker.New(locks, nil))
		names := []string{"a", "b", "c", "d"}
		for range 50 {
			held, err := locker.LockAll(patient(t), other, names)
			require.NoError(t, err)
			for _, l := range held {
				time.AfterFunc(time.Second, func() { _ = l.Unlock(context.Background()) })
			}
			lease, err := slots.LockAny(patient(t), c, names)
			require.NoError(t, err)
			synctest.Wait()
			var kept []string
			for _, name := range names {
				if st, err := other.Inspect(t.Context(), name); assert.NoError(t, err) && st.Held {
					kept = append(kept, name)
				}
			}
			assert.Equal(t, []string{lease.Name()}, kept)
			require.NoError(t, lease.Unlock(t.Context()))
		}
	})
}

// lockerFunc is a Locker of somebody else: TryLock finds everything held.
type lockerFunc func(ctx context.Context, name string) (*locker.Lease, error)

func (f lockerFunc) Lock(ctx context.Context, name string, _ ...locker.Option) (*locker.Lease, error) {
	return f(ctx, name)
}

func (f lockerFunc) TryLock(context.Context, string, ...locker.Option) (*locker.Lease, error) {
	return nil, locker.ErrHeld
}

func (f lockerFunc) Guarantees() locker.Guarantees { return locker.Guarantees{} }

// A Lock that has won does not look at its context any more, or returns long after it.
func TestLockAnyReleasesALateWin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := closing(t, locker.New(memory.New(), nil))
		began := time.Now()
		late := func(ctx context.Context, name string) (*locker.Lease, error) {
			if name == "late" {
				<-ctx.Done()
				time.Sleep(time.Minute)
			}
			return c.Lock(context.WithoutCancel(ctx), name)
		}
		lease, err := slots.LockAny(patient(t), lockerFunc(late), []string{"late", "soon"})
		require.NoError(t, err)
		assert.Equal(t, "soon", lease.Name())
		assert.Zero(t, time.Since(began), "the winner waits for nobody")
		time.Sleep(time.Minute)
		untouched(t, c, "late")
		require.NoError(t, lease.Err())
	})
}

// The caller leaves at the moment of the grant: it has the lock, or nobody has.
func TestLockAnyCancelledAtTheGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := memory.New()
		c, other := closing(t, locker.New(locks, nil)), closing(t, locker.New(locks, nil))
		for range 200 {
			held, err := locker.LockAll(patient(t), other, []string{"a", "b"})
			require.NoError(t, err)
			ctx, cancel := context.WithCancel(patient(t))
			time.AfterFunc(time.Second, cancel)
			time.AfterFunc(time.Second, func() { _ = held.Unlock(context.Background()) })
			if lease, err := slots.LockAny(ctx, c, []string{"a", "b"}); err == nil {
				require.NoError(t, lease.Unlock(t.Context()))
			} else {
				require.ErrorIs(t, err, context.Canceled)
			}
			untouched(t, other, "a", "b")
		}
	})
}

func TestLockAnyOfMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := memory.New()
		all := []string{"a", "b", "c"}
		inside := map[string]*int{"a": new(int), "b": new(int), "c": new(int)} // guarded by the locks alone
		var most, now atomic.Int32
		var callers sync.WaitGroup
		for i := range 12 {
			c := closing(t, locker.New(locks, nil))
			callers.Go(func() {
				for range 25 {
					lease, err := slots.LockAny(patient(t), c, append(all[i%3:], all[:i%3]...))
					if !assert.NoError(t, err) {
						return
					}
					*inside[lease.Name()]++
					n := now.Add(1)
					for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
					}
					time.Sleep(time.Millisecond)
					now.Add(-1)
					assert.NoError(t, lease.Unlock(t.Context()))
				}
			})
		}
		callers.Wait()
		assert.Equal(t, 12*25, *inside["a"]+*inside["b"]+*inside["c"])
		assert.EqualValues(t, 3, most.Load(), "all were used at once")
		untouched(t, closing(t, locker.New(locks, nil)), all...)
	})
}

func TestLockAnyTellsTheTruth(t *testing.T) {
	refused, gone := errors.New("wrong password"), fmt.Errorf("cable cut: %w", locker.ErrUnavailable)
	for name, test := range map[string]struct {
		before func(n int, ctx context.Context, req locker.Request) (locker.Grant, error, bool)
		opts   []locker.Option
		want   []error
		not    error
		after  time.Duration
	}{
		"all are held": {
			want: []error{locker.ErrHeld, context.DeadlineExceeded}, not: locker.ErrUnavailable, after: time.Minute,
		},
		"none can be asked for": {
			before: answer("ab", gone), want: []error{locker.ErrUnavailable}, not: locker.ErrHeld,
			after: 30 * time.Second,
		},
		"the first cannot be asked for, the other is held": {
			before: answer("a", gone), want: []error{locker.ErrUnavailable}, not: locker.ErrHeld, after: time.Minute,
		},
		"the second cannot be asked for, the other is held": {
			before: answer("b", gone), want: []error{locker.ErrUnavailable}, not: locker.ErrHeld, after: time.Minute,
		},
		"one is refused, the other is held": {
			before: answer("b", refused), want: []error{refused, locker.ErrRefused}, not: locker.ErrHeld,
		},
		"one is refused during the wait": {
			before: func(_ int, _ context.Context, req locker.Request) (locker.Grant, error, bool) {
				return locker.Grant{}, refused, req.Wait && req.Name == "b"
			},
			want: []error{refused, locker.ErrRefused}, not: locker.ErrUnavailable,
		},
		"MinHold": {opts: []locker.Option{locker.MinHold(time.Second)}, want: []error{locker.ErrInvalid}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake()
				f.put("a", time.Hour)
				f.put("b", time.Hour)
				f.before = test.before
				c := closing(t, locker.New(f, nil))
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				began := time.Now()
				_, err := slots.LockAny(ctx, c, []string{"a", "b"}, test.opts...)
				for _, want := range test.want {
					require.ErrorIs(t, err, want)
				}
				if test.not != nil {
					require.NotErrorIs(t, err, test.not)
				}
				assert.InDelta(t, test.after.Seconds(), time.Since(began).Seconds(), 0.1)
				assert.NotContains(t, err.Error(), "\n")
			})
		})
	}
}

// answer is the service's answer to requests for one of the names, of one letter each.
func answer(names string, err error) func(int, context.Context, locker.Request) (locker.Grant, error, bool) {
	return func(_ int, _ context.Context, req locker.Request) (locker.Grant, error, bool) {
		return locker.Grant{}, err, strings.Contains(names, req.Name)
	}
}

// One name comes back while another is still held.
func TestLockAnyOutlastsAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := memory.New()
		c := closing(t, locker.New(locks, nil))
		locks.Fail(fmt.Errorf("cable cut: %w", locker.ErrUnavailable))
		time.AfterFunc(10*time.Second, func() { locks.Fail(nil) })
		lease, err := slots.LockAny(patient(t), c, []string{"a", "b"})
		require.NoError(t, err)
		require.NoError(t, lease.Unlock(t.Context()))
		untouched(t, c, "a", "b")
	})
}

func TestLockAnyRefusesWhatCannotWork(t *testing.T) {
	c := closing(t, locker.New(memory.New(), nil))
	over, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := slots.LockAny(over, c, []string{"a", "b"})
	require.ErrorIs(t, err, context.Canceled)
	_, err = slots.LockAny(patient(t), c, nil)
	require.ErrorIs(t, err, locker.ErrInvalid)
	_, err = slots.LockAny(patient(t), c, []string{"a", ""}, locker.MinHold(time.Second))
	require.ErrorIs(t, err, locker.ErrInvalid)
}

// An error tells what the caller called, and not by which way LockAny tried it.
func TestErrorsOfLockAnyNameLock(t *testing.T) {
	c := locker.New(memory.New(), nil)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for what, call := range map[string]func() error{
		"no name":    func() error { _, err := slots.LockAny(t.Context(), c, nil); return err },
		"empty name": func() error { _, err := slots.LockAny(t.Context(), c, []string{"", "a"}); return err },
		"ended":      func() error { _, err := slots.LockAny(ended, c, []string{"a", "b"}); return err },
		"MinHold": func() error {
			_, err := slots.LockAny(t.Context(), c, []string{"a"}, locker.MinHold(time.Hour))
			return err
		},
	} {
		var e *locker.Error
		require.ErrorAs(t, call(), &e, what)
		assert.Equal(t, "lock", e.Op, what)
	}
}

func TestTryLockAllHoldsAllOrNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := memory.New()
		c, other := closing(t, locker.New(locks, nil)), closing(t, locker.New(locks, nil))
		theirs := take(t, other, "b")
		_, err := locker.TryLockAll(patient(t), c, []string{"c", "b", "a"})
		require.ErrorIs(t, err, locker.ErrHeld)
		require.NotErrorIs(t, err, context.DeadlineExceeded, "it has waited")
		untouched(t, other, "a", "c")
		require.NoError(t, theirs.Unlock(t.Context()))
		held, err := locker.TryLockAll(patient(t), c, []string{"b", "a", "b"})
		require.NoError(t, err)
		assert.Equal(t, []string{"a", "b"}, names(held))
		_, err = locker.TryLockAll(patient(t), c, []string{"d"}, locker.MinHold(time.Minute))
		require.ErrorIs(t, err, locker.ErrInvalid)
	})
}

func TestALabelPerCall(t *testing.T) {
	c := closing(t, locker.New(memory.New(), &locker.Options{Label: "mine"}))
	for label, want := range map[string]string{"10.0.0.7:80": "10.0.0.7:80", "": "mine"} {
		lease, err := c.Lock(t.Context(), "a", locker.Label(label))
		require.NoError(t, err)
		st, err := c.Inspect(t.Context(), "a")
		require.NoError(t, err)
		assert.Equal(t, want, st.Label)
		require.NoError(t, lease.Unlock(t.Context()))
	}
	for _, wrong := range []string{strings.Repeat("l", 129), "a\nb", "\xff"} {
		_, err := c.Lock(t.Context(), "a", locker.Label(wrong))
		require.ErrorIs(t, err, locker.ErrInvalid)
	}
}
