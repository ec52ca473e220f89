package locker

import (
	"context"
	"errors"
	"slices"
)

// Leases are leases on several names, held at the same time. See [LockAll].
type Leases []*Lease

// LockAll waits until it holds all the names at once, or returns an error and holds
// none. It locks the names in the order of their bytes, each once, so that callers with some
// of the same names do not wait for each other in a circle. The leases are in that order.
// opts apply to each lease. MinHold is not possible: it would keep a name locked although
// another name cannot be locked.
//
// A caller that already holds a name and calls LockAll for other names breaks that
// order and may wait for ever. So may callers whose clients have different prefixes.
func LockAll(ctx context.Context, l Locker, names []string, opts ...Option) (held Leases, err error) {
	if AskedBy(opts...).MinHold != 0 {
		return nil, &Error{Op: "lock", Err: invalid("MinHold is not possible where several names are locked: " +
			"lock one name for all of them")}
	}
	l = orNone(l)
	for _, name := range slices.Compact(slices.Sorted(slices.Values(names))) {
		// What is held may be lost during a wait: that ends it.
		waitCtx, cancel := held.Context(ctx)
		var lease *Lease
		lease, err = l.Lock(waitCtx, name, opts...)
		cancel()
		if err != nil {
			break
		}
		held = append(held, lease)
	}
	for i := 0; (err == nil || ctx.Err() == nil) && i < len(held); i++ {
		if lost := held[i].Err(); lost != nil {
			err = lost // not the end of waitCtx, which the caller does not know
			break
		}
	}
	if err != nil {
		// A caller whose context is over waits for no service (R8): the releases go on.
		brief, cancel := context.WithTimeout(ctx, unlockTimeout)
		if ctx.Err() != nil {
			cancel()
			brief, cancel = context.WithTimeout(context.WithoutCancel(ctx), lastWord)
		}
		defer cancel()
		_ = held.Unlock(brief)
		return nil, err
	}
	return held, nil
}

// DoAll is [Do] for several names at once, at least one; see [LockAll]. The context of fn ends when
// one of the leases is over.
func DoAll(ctx context.Context, l Locker, names []string,
	fn func(ctx context.Context, leases Leases) error, opts ...Option) (err error) {
	if len(names) == 0 {
		return &Error{Op: "lock", Err: invalid("there is no name: fn would run with nothing locked")}
	}
	leases, err := LockAll(ctx, l, names, opts...)
	if err != nil {
		return err
	}
	fnCtx, cancel := leases.Context(ctx)
	defer func() {
		cancel()
		err = lateUnlock(ctx, leases, err)
	}()
	return fn(fnCtx, leases)
}

// Context is [Lease.Context] for all the leases: the context ends when one of them is
// over.
func (ls Leases) Context(parent context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(parent)
	for _, l := range ls {
		inner, end := l.Context(ctx)
		outer := cancel
		ctx, cancel = inner, func() { end(); outer() }
	}
	return ctx, cancel
}

// Unlock unlocks all the leases, the last one first, even if one fails. Its error
// matches the errors of all that failed; see [Lease.Unlock].
func (ls Leases) Unlock(ctx context.Context) error {
	var errs []error
	for _, l := range slices.Backward(ls) {
		errs = append(errs, l.Unlock(ctx))
	}
	return errors.Join(errs...)
}
