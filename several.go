package locker

import (
	"context"
	"slices"
	"time"

	"github.com/golockers/locker/internal/oneline"
)

// Leases are leases on several names, held at the same time. See [LockAll].
type Leases []*Lease

// LockAll waits until it holds all the names at once, or returns an error and holds none. It locks each
// name once, in byte order, so that callers with overlapping names cannot deadlock, and returns the
// leases in that order. opts apply to each lease. A MaxWait bounds the whole call: each name gets what
// is left of it. MinHold is not possible, because it would keep a name locked even if another name
// could not be locked. If ctx is inside a lease on one of the names, the call fails at once and the
// error matches ErrInvalid.
//
// A caller that already holds a name and calls LockAll for other names breaks that order and may wait
// forever. So may callers whose clients have different prefixes.
func LockAll(ctx context.Context, l Locker, names []string, opts ...Option) (held Leases, err error) {
	asked := AskedBy(opts...)
	if asked.MinHold != 0 {
		return nil, &Error{Op: "lock", Err: invalid("MinHold is not possible for several names: " +
			"lock one name for all of them")}
	}
	l = orNone(l)
	began := time.Now()
	names = slices.Compact(slices.Sorted(slices.Values(names)))
	if k, ok := l.(knowing); ok { // before waiting for any name
		for _, name := range names {
			if err := notNested(ctx, k, name, asked.MaxWait == nil || *asked.MaxWait > 0); err != nil {
				return nil, &Error{Op: "lock", Name: name, Err: err}
			}
		}
	}
	for _, name := range names {
		// Losing a lease that is already held ends the wait.
		waitCtx, cancel := held.Context(ctx)
		if d := asked.MaxWait; d != nil && len(held) > 0 {
			opts = append(slices.Clip(opts), MaxWait(max(0, *d-time.Since(began))))
		}
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
		// A caller whose context has ended does not wait for the service (R8); the releases continue.
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

// DoAll is [Do] for several names at once, at least one; see [LockAll]. The context of fn ends when any
// of the leases ends; [FromContext] returns each lease by its name.
func DoAll(ctx context.Context, l Locker, names []string, fn func(ctx context.Context) error, opts ...Option) error {
	if len(names) == 0 {
		return &Error{Op: "lock", Err: invalid("there is no name: fn would run with nothing locked")}
	}
	leases, err := LockAll(ctx, l, names, opts...)
	if err != nil {
		return err
	}
	return do(ctx, leases, fn)
}

// Context is [Lease.Context] for all the leases: the context ends when any of them ends.
func (ls Leases) Context(parent context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(parent)
	for _, l := range ls {
		inner, end := l.Context(ctx)
		outer := cancel
		ctx, cancel = inner, func() { end(); outer() }
	}
	return ctx, cancel
}

// Unlock unlocks all the leases, the last one first, even if some fail. Its error matches the errors of
// all that failed; see [Lease.Unlock].
func (ls Leases) Unlock(ctx context.Context) error {
	var errs []error
	for _, l := range slices.Backward(ls) {
		errs = append(errs, l.Unlock(ctx))
	}
	return oneline.Join(errs...)
}
