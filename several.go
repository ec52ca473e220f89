package locker

import (
	"context"
	"errors"
	"slices"

	"github.com/golockers/locker/internal/clock"
)

// Leases are leases on several names, held at the same time. See [LockAll].
type Leases []*Lease

// LockAll waits until it holds all the names at once, or returns an error and holds
// none. It locks the names in the order of their bytes, whatever their order in
// names, so that callers with some of the same names do not wait for each other in a
// circle. It locks a name once, even if names has it twice. The leases are in the
// order of locking. opts apply to each lease. MinHold is not possible: it would keep
// a name locked although another name cannot be locked.
//
// A caller that already holds a name and calls LockAll for other names breaks that
// order and may wait for ever. So may callers whose clients have different prefixes.
func LockAll(ctx context.Context, l Locker, names []string, opts ...Option) (Leases, error) {
	return lockAll(ctx, "lock", l.Lock, names, opts)
}

// TryLockAll is [LockAll] without a wait: if one of the names cannot be had at once,
// it holds none, and the error is that of TryLock.
func TryLockAll(ctx context.Context, l Locker, names []string, opts ...Option) (Leases, error) {
	return lockAll(ctx, "trylock", l.TryLock, names, opts)
}

func lockAll(ctx context.Context, op string, lock lockFunc, names []string,
	opts []Option) (held Leases, err error) {
	if err := noMinHold(op, opts); err != nil {
		return nil, err
	}
	for _, name := range slices.Compact(slices.Sorted(slices.Values(names))) {
		// What is held may be lost during a wait: that ends it.
		waitCtx, cancel := held.Context(ctx)
		var lease *Lease
		lease, err = lock(waitCtx, name, opts...)
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

// lockFunc is Lock or TryLock of a Locker.
type lockFunc func(ctx context.Context, name string, opts ...Option) (*Lease, error)

func noMinHold(op string, opts []Option) error {
	if (settings{}).with(opts).minHold != 0 {
		return &Error{Op: op, Err: invalid("MinHold is not possible where several names are locked: " +
			"lock one name for all of them")}
	}
	return nil
}

// DoAll is [Do] for several names at once; see [LockAll]. The context of fn ends when
// one of the leases is over.
func DoAll(ctx context.Context, l Locker, names []string,
	fn func(ctx context.Context, leases Leases) error, opts ...Option) (err error) {
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

// LockAny waits until it holds one of the names, and holds no other. It takes the
// first of names that is free. If none is free, it waits for all of them, and keeps
// the one that it gets first; of the others, whatever may have been locked is released
// in the background. [Lease.Name] says which one it has. opts apply to every request.
// MinHold is not possible: it would keep a name locked that LockAny does not need.
//
// A name that the service cannot be asked for is left out while there are others, and asked
// for again every second or so. The error is that of one of the names. It matches ErrHeld only if all names are held.
func LockAny(ctx context.Context, l Locker, names []string, opts ...Option) (*Lease, error) {
	if err := noMinHold("lock", opts); err != nil {
		return nil, err
	}
	lease, err := TryLockAny(ctx, l, names, opts...)
	if e, ok := err.(*Error); ok && !mayPass(err) { //nolint:errorlint // a Locker's own, whole
		return nil, &Error{Op: "lock", Name: e.Name, Err: e.Err}
	}
	if err == nil || !mayPass(err) {
		return lease, err
	}
	waitCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	answers := make(chan answer)
	for i, name := range names {
		go func() { lockOneOfAny(waitCtx, l, name, opts, func(a answer) { a.name = i; answers <- a }) }()
	}
	away := make(map[int]error) // the names that the service cannot be asked for
	err = nil
	for asking := len(names); asking > 0; {
		a := <-answers
		switch {
		case a.ends:
			asking--
		case a.err == nil:
			delete(away, a.name)
			continue
		default:
			away[a.name] = a.err
		}
		if a.lease != nil || ctx.Err() == nil && (len(away) == len(names) || !mayPass(a.err)) {
			go func() { // waitCtx ends those that still ask
				for asking > 0 {
					if a := <-answers; a.ends {
						asking--
						if a.lease != nil {
							_ = a.lease.Unlock(waitCtx)
						}
					}
				}
			}()
			return a.lease, a.err
		}
		if a.ends {
			err = telling(err, a.err)
		}
	}
	return nil, err
}

// answer is what one of several names has come to: a lease or the last error, if it ends;
// otherwise the outage that keeps it from being asked for, or nil when that is over.
type answer struct {
	name  int
	ends  bool
	lease *Lease
	err   error
}

// lockOneOfAny locks name for LockAny. When Lock has run out of patience, the name is tried
// again and again: others may come to wait for it alone.
func lockOneOfAny(ctx context.Context, l Locker, name string, opts []Option, tell func(answer)) {
	for {
		lease, err := l.Lock(ctx, name, opts...)
		for outage := false; ; outage = true {
			if err == nil || ctx.Err() != nil || !mayPass(err) {
				tell(answer{ends: true, lease: lease, err: err})
				return
			}
			if errors.Is(err, ErrHeld) {
				if outage {
					tell(answer{})
				}
				break
			}
			tell(answer{err: err})
			if clock.Sleep(ctx, clock.Jitter(lastRetry)) != nil {
				err = &Error{Op: "lock", Name: name, Err: &waitError{ctx: ctxError(ctx), state: bare(err)}}
				continue
			}
			lease, err = l.TryLock(ctx, name, opts...)
		}
	}
}

// bare is err without the operation and the name that it was told with.
func bare(err error) error {
	if e, ok := err.(*Error); ok { //nolint:errorlint // only the outermost
		return e.Err
	}
	return err
}

// TryLockAny locks the first of names that is free, and no other. It does not wait.
// The error is that of one of the names. It matches ErrHeld only if all names are held.
func TryLockAny(ctx context.Context, l Locker, names []string, opts ...Option) (*Lease, error) {
	if len(names) == 0 {
		return nil, &Error{Op: "trylock", Err: invalid("there is no name: give at least one")}
	}
	var err error
	for _, name := range names {
		lease, failed := l.TryLock(ctx, name, opts...)
		if failed == nil || !mayPass(failed) {
			return lease, failed
		}
		err = telling(err, failed)
	}
	return nil, err
}

// mayPass reports whether another name, or the same one later, may be had after err.
func mayPass(err error) bool { return errors.Is(err, ErrHeld) || errors.Is(err, ErrUnavailable) }

// telling returns the one of two errors that may be told for both: ErrHeld never
// stands for an outage.
func telling(a, b error) error {
	if a == nil || errors.Is(a, ErrHeld) && !errors.Is(b, ErrHeld) {
		return b
	}
	return a
}
