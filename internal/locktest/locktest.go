// Package locktest has what the tests of every package do in the same way.
package locktest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/refusal"
)

// Within returns a context that ends after d, or with the test.
func Within(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// Eventually fails the test if condition does not hold within d. It asks in the test's own goroutine.
func Eventually(t testing.TB, d time.Duration, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(d); !condition(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			require.Fail(t, "not within "+d.String()+": "+what)
		}
	}
}

// Must is v of a function that cannot fail here.
func Must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// Client returns a Client of b that is closed with the test.
func Client(t testing.TB, b driver.Backend, opts *locker.Options) *locker.Client {
	t.Helper()
	c, err := locker.New(b, opts)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, c.Close()) })
	return c
}

// soon is when a lock has to be there that is free, or will be: long for a slow machine, and shorter than the TTL
// of a minute for which tests leave a lock that nobody may have to wait out.
const soon = 30 * time.Second

// Lock locks a name that is free, or will be.
func Lock(t testing.TB, l locker.Locker, name string, opts ...locker.Option) *locker.Lease {
	t.Helper()
	lease, err := l.Lock(Within(t, soon), name, opts...)
	require.NoError(t, err)
	return lease
}

// Acquire asks b for a lock that is free.
func Acquire(t testing.TB, b driver.Backend, req driver.Request) driver.Grant {
	t.Helper()
	g, err := b.Acquire(Within(t, soon), req)
	require.NoError(t, err)
	require.Nil(t, g.Refused, "%q is held", req.Name)
	return g
}

// Ask asks a Backend once. A refusal is a *refusal.Error here, which matches ErrHeld, and a Hold has what its Undo
// may find.
func Ask(ctx context.Context, b driver.Backend, req driver.Request) (driver.Grant, error) {
	g, err := b.Acquire(ctx, req)
	if g.Refused == nil {
		return g, err
	}
	refused := &refusal.Error{Refusal: *g.Refused}
	if g.Hold == nil && refused.Undo != nil {
		g.Hold = refusal.Leftover(refused.Undo)
	}
	if err != nil {
		return g, fmt.Errorf("%w: %w", refused, err)
	}
	return g, refused
}
