package fencing

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/golockers/locker"
)

// WithTokens returns a Locker whose leases are those of l, and all have a token. opts are
// those with which the program will lock: only [locker.Shared] matters. If the backend
// declares that it has no tokens, or, with Shared, none for those that share a lock,
// WithTokens returns an error that says why and what to do, and matches
// [errors.ErrUnsupported]: call WithTokens when the program starts.
//
// A Locker that was made without Shared on a backend without tokens for sharers says in
// its Guarantees that it has no shared locks. If a lease has no token nevertheless, it is
// released, and Lock or TryLock returns an error that matches [ErrMissing].
func WithTokens(l locker.Locker, opts ...locker.Option) (locker.Locker, error) {
	g, why := l.Guarantees(), ""
	switch {
	case g.Fencing == locker.FencingNone:
		why = "gives its leases no fencing tokens: choose one that has them, or turn them on (redlock: fencing=on in " +
			"the URL)"
	case locker.AskedBy(opts...).Shared && g.Shared != locker.SharingWithTokens:
		why = fmt.Sprintf("has shared locks: %v: choose a backend that has them with tokens", g.Shared)
	default:
		return required{l}, nil
	}
	return nil, fmt.Errorf("fencing: backend %s %s (%w)", g.Backend, why, errors.ErrUnsupported)
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
