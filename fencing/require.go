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
// its Guarantees that it has no shared locks, and refuses to lock with Shared by the same
// error, before the backend is asked. If a lease has no token nevertheless, it is
// released, and Lock or TryLock returns an error that matches [ErrMissing].
func WithTokens(l locker.Locker, opts ...locker.Option) (locker.Locker, error) {
	if l == nil {
		return nil, fmt.Errorf("fencing: %w: the Locker is nil", locker.ErrInvalid)
	}
	if err := unsupported(l.Guarantees(), opts); err != nil {
		return nil, err
	}
	return required{l}, nil
}

// unsupported returns the error of WithTokens if g says that leases with opts have no token.
func unsupported(g locker.Guarantees, opts []locker.Option) error {
	var why string
	switch {
	case g.Fencing == locker.FencingNone:
		why = "gives its leases no fencing tokens: choose one that has them, or turn them on (redlock: fencing=on in " +
			"the URL)"
	case g.Shared != locker.SharingWithTokens && locker.AskedBy(opts...).Shared:
		why = fmt.Sprintf("has shared locks: %v: choose a backend that has them with tokens", g.Shared)
	default:
		return nil
	}
	return fmt.Errorf("fencing: backend %s %s (%w)", g.Backend, why, errors.ErrUnsupported)
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
	return r.lock(ctx, r.l.Lock, name, opts)
}

func (r required) TryLock(ctx context.Context, name string, opts ...locker.Option) (*locker.Lease, error) {
	return r.lock(ctx, r.l.TryLock, name, opts)
}

// unlockTimeout bounds the release of a lease without a token.
const unlockTimeout = 5 * time.Second

func (r required) lock(ctx context.Context,
	lock func(context.Context, string, ...locker.Option) (*locker.Lease, error), name string, opts []locker.Option,
) (*locker.Lease, error) {
	if err := unsupported(r.l.Guarantees(), opts); err != nil {
		return nil, err
	}
	lease, err := lock(ctx, name, opts...)
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
