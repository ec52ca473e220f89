package fencing

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/golockers/locker"
)

// WithTokens returns a Locker whose leases are those of l, and all have a token. If the
// backend declares that it has no tokens, WithTokens returns an error that says why and
// what to do, and matches [errors.ErrUnsupported]: call WithTokens when the program
// starts.
//
// Some backends have tokens, but none for those that share a lock. Then the Guarantees
// of the Locker say that it has no shared locks, and every lease of a call with
// [locker.Shared] is given back: a program that shares locks calls [WithSharedTokens].
//
// If a lease has no token nevertheless, it is released, and Lock or TryLock returns an
// error that matches [ErrMissing].
func WithTokens(l locker.Locker) (locker.Locker, error) {
	g := l.Guarantees()
	if g.Fencing == locker.FencingNone {
		return nil, fmt.Errorf("fencing: backend %s gives its leases no fencing tokens: choose one that has them, or "+
			"turn them on (redlock: fencing=on in the URL) (%w)", g.Backend, errors.ErrUnsupported)
	}
	return required{l}, nil
}

// WithSharedTokens is [WithTokens] for programs that also share locks: the error also
// says that the backend has no shared locks, or gives no tokens to those that share one.
func WithSharedTokens(l locker.Locker) (locker.Locker, error) {
	if g := l.Guarantees(); g.Fencing != locker.FencingNone && g.Shared != locker.SharingWithTokens {
		return nil, fmt.Errorf("fencing: backend %s has shared locks: %v: choose a backend that has them with tokens"+
			" (%w)", g.Backend, g.Shared, errors.ErrUnsupported)
	}
	return WithTokens(l)
}

type required struct{ l locker.Locker }

func (r required) Guarantees() locker.Guarantees {
	g := r.l.Guarantees()
	if g.Shared == locker.SharingTokenless {
		g.Shared = locker.SharingNone
	}
	return g
}

func (r required) Lock(ctx context.Context, name string, opts ...locker.Option) (*locker.Lease, error) {
	lease, err := r.l.Lock(ctx, name, opts...)
	return withToken(ctx, lease, err)
}

func (r required) TryLock(ctx context.Context, name string, opts ...locker.Option) (*locker.Lease, error) {
	lease, err := r.l.TryLock(ctx, name, opts...)
	return withToken(ctx, lease, err)
}

// unlockTimeout bounds the release of a lease without a token.
const unlockTimeout = 5 * time.Second

func withToken(ctx context.Context, lease *locker.Lease, err error) (*locker.Lease, error) {
	if err != nil {
		return nil, err
	}
	if _, err = Of(lease); err == nil {
		return lease, nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), unlockTimeout)
	defer cancel()
	return nil, errors.Join(err, lease.Unlock(ctx))
}
