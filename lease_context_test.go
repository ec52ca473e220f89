package locker_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/election"
	"github.com/golockers/locker/fencing"
	"github.com/golockers/locker/internal/locktest"
	"github.com/golockers/locker/internal/memlock"
	"github.com/golockers/locker/lockertest"
	"github.com/golockers/locker/slots"
)

func TestFromContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := locktest.Client(t, newScripted(), &locker.Options{TTL: ttl, Prefix: "app/"})
		other := locktest.Client(t, newScripted(), nil)
		finds := func(ctx context.Context, want ...*locker.Lease) { // of any Client, of c, of other
			t.Helper()
			for i, from := range []func(context.Context, string) (*locker.Lease, bool){locker.FromContext,
				c.FromContext, other.FromContext} {
				l, ok := from(ctx, "a")
				assert.Same(t, want[i], l, i)
				assert.Equal(t, want[i] != nil, ok, i)
			}
			_, ok := locker.FromContext(ctx, "app/a")
			assert.False(t, ok, "the name has no prefix")
		}
		in := func(ctx context.Context, l *locker.Lease) context.Context {
			ctx, cancel := l.Context(ctx)
			t.Cleanup(cancel)
			return ctx
		}
		lock := func(c *locker.Client, opts ...locker.Option) *locker.Lease {
			l := locktest.Lock(t, c, "a", opts...)
			return l
		}
		finds(t.Context(), nil, nil, nil)
		first, second := lock(c, locker.NoRenew()), lock(other)
		ctx := in(in(t.Context(), first), second)
		finds(context.WithoutCancel(ctx), second, first, second)
		finds(in(ctx, first), first, first, second)
		require.NoError(t, second.Unlock(t.Context()))
		finds(ctx, first, first, nil)
		time.Sleep(ttl) // at this moment, maybe before any timer
		finds(ctx, nil, nil, nil)

		tokens, err := fencing.WithTokens(c)
		require.NoError(t, err)
		locktest.Lock(t, c, "0")
		require.NoError(t, locker.DoAll(t.Context(), c, []string{"b", "a"}, func(ctx context.Context) error {
			for _, name := range []string{"a", "b"} {
				l, ok := c.FromContext(ctx, name)
				require.True(t, ok, name)
				assert.Equal(t, name, l.Name())
				_, err := locker.LockAll(ctx, tokens, []string{"0", name}, locker.MaxWait(time.Second))
				require.ErrorIs(t, err, locker.ErrInvalid, "it does not wait for itself, nor for another before")
			}
			return nil
		}))
	})
}

// Close ends the contexts of all leases before it lets anybody in, whatever they were made by.
func TestContextsEndBeforeTheNextHolderBegins(t *testing.T) {
	type work func(context.Context) error
	for what, do := range map[string]func(ctx context.Context, c *locker.Client, f work) error{
		"Do": func(ctx context.Context, c *locker.Client, f work) error { return locker.Do(ctx, c, "job", f) },
		"DoAll": func(ctx context.Context, c *locker.Client, f work) error {
			return locker.DoAll(ctx, c, []string{"a", "job", "z"}, f)
		},
		"fencing": func(ctx context.Context, c *locker.Client, f work) error { return fencing.Do(ctx, c, "job", f) },
		"slots":   func(ctx context.Context, c *locker.Client, f work) error { return slots.Do(ctx, c, "job", 1, f) },
		"election": func(ctx context.Context, c *locker.Client, f work) error {
			return election.New(c, "job", nil).Run(ctx, f)
		},
	} {
		t.Run(what, func(t *testing.T) {
			for range 100 {
				b := memlock.New(false)
				c, next := locktest.Must(locker.New(b, nil)), locktest.Must(locker.New(b, nil))
				began, returns, two := make(chan context.Context), make(chan struct{}), make(chan bool)
				go func() {
					_ = do(t.Context(), c, func(ctx context.Context) error { began <- ctx; <-returns; return nil })
				}()
				before := <-began
				go func() {
					_ = do(t.Context(), next, func(context.Context) error { two <- before.Err() == nil; return nil })
				}()
				go func() { assert.NoError(t, c.Close()) }()
				beside := <-two
				close(returns)
				require.False(t, beside, "two at once")
				require.NoError(t, next.Close())
			}
		})
	}
}

// undone is a backend whose hold tells when it is let go.
type undone struct {
	driver.Hold
	told func()
}

func (h undone) Undo(ctx context.Context) error { h.told(); return h.Hold.Undo(ctx) }
func (h undone) Release(ctx context.Context, keep time.Duration) error {
	h.told()
	return h.Hold.Release(ctx, keep)
}

// The lease is lost while its holder unlocks: the lock is let go when all contexts have ended, and not
// in between.
func TestUnlockWaitsForTheContextsThatALossEnds(t *testing.T) {
	req := driver.Request{Name: "a", Owner: "me", TTL: time.Minute, Lost: func() {}}
	g := locktest.Acquire(t, memlock.New(false), req)
	all := make([]context.Context, 20_000)
	alive := make(chan bool, 9)
	lease, lose, err := lockertest.NewLease("a", driver.Grant{Validity: g.Validity, Hold: undone{g.Hold, func() {
		for _, ctx := range all {
			if ctx.Err() == nil {
				alive <- true
				return
			}
		}
		alive <- false
	}}})
	require.NoError(t, err)
	for i := range all {
		var cancel context.CancelFunc
		all[i], cancel = lease.Context(t.Context())
		defer cancel()
	}
	go lose()
	for lease.Err() == nil {
	}
	_ = lease.Unlock(t.Context())
	require.False(t, <-alive)
}
