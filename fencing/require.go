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
// If a lease has no token nevertheless, it is released, and Lock or TryLock returns an
// error that matches [ErrMissing].
func WithTokens(l locker.Locker) (locker.Locker, error) {
	g := l.Guarantees()
	if g.Fencing == locker.FencingNone {
		why := g.FencingHint
		if why == "" {
			why = "choose a backend that has them"
		}
		return nil, fmt.Errorf("fencing: backend %s gives its leases no fencing tokens: %s (%w)", g.Backend,
			why, errors.ErrUnsupported)
	}
	return required{l}, nil
}

type required struct{ l locker.Locker }

func (r required) Guarantees() locker.Guarantees { return r.l.Guarantees() }

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
