package fencing

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/golockers/locker"
	"github.com/golockers/locker/internal/oneline"
)

// WithTokens returns a Locker that grants the leases of l, all of which have a token. opts are those
// with which the program will lock; only [locker.Shared] matters. If the backend declares that it has
// no tokens or, with Shared, no tokens for sharers, the error says why and what to do, and matches
// [errors.ErrUnsupported]. Call WithTokens when the program starts.
//
// If it was made without Shared on a backend whose sharers have no tokens, the Locker's Guarantees say
// that it has no shared locks, and it refuses to lock with Shared with the same error, before it asks
// the backend. If a lease has no token nevertheless, it is released, and Lock or TryLock returns an
// error that matches [ErrMissing].
func WithTokens(l locker.Locker, opts ...locker.Option) (locker.Locker, error) {
	if l == nil {
		return nil, fmt.Errorf("fencing: %w: the Locker is nil", locker.ErrInvalid)
	}
	if err := unsupported(l, opts); err != nil {
		return nil, err
	}
	return required{l}, nil
}

// unsupported returns the error of WithTokens if, by the guarantees of l, leases with opts have no
// token.
func unsupported(l locker.Locker, opts []locker.Option) error {
	var why string
	g, known := locker.GuaranteesOf(l)
	switch {
	case !known:
		return nil // each lease will show it
	case g.Fencing == locker.FencingNone:
		why = "gives its leases no fencing tokens: choose one that has them, or turn them on (redlock: fencing=on in " +
			"the URL)"
	case g.Shared != locker.SharingWithTokens && locker.AskedBy(opts...).Shared:
		why = fmt.Sprintf("has shared locks %v: choose a backend with tokens for them", g.Shared)
	default:
		return nil
	}
	return fmt.Errorf("fencing: backend %s %s (%w)", g.Backend, why, errors.ErrUnsupported)
}

type required struct{ l locker.Locker }

func (r required) Guarantees() locker.Guarantees {
	g, _ := locker.GuaranteesOf(r.l)
	if g.Shared == locker.SharingTokenless {
		g.Shared = locker.SharingNone
	}
	return g
}

// FromContext is the Client's method, which LockAll looks for.
func (r required) FromContext(ctx context.Context, name string) (lease *locker.Lease, ok bool) {
	if c, is := r.l.(interface {
		FromContext(ctx context.Context, name string) (*locker.Lease, bool)
	}); is {
		return c.FromContext(ctx, name)
	}
	return nil, false
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
	if err := unsupported(r.l, opts); err != nil {
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
	return nil, oneline.Join(err, lease.GiveBack(ctx)) // no MinHold keeps what nobody has used
}
