package slots

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/golockers/locker"
	"github.com/golockers/locker/internal/clock"
)

// LockAny waits until it holds one of the names, and holds no other. It takes the
// first of names that is free. If none is free, it waits for all of them, and keeps
// the one that it gets first; of the others, whatever may have been locked is released
// in the background. [locker.Lease.Name] says which one it has. opts apply to every request.
// MinHold is not possible: it would keep a name locked that LockAny does not need.
//
// A name that the service cannot be asked for is left out while there are others, and asked
// for again every second or so. The error is that of one of the names. It matches ErrHeld
// only if all names are held.
func LockAny(ctx context.Context, l locker.Locker, names []string, opts ...locker.Option) (*locker.Lease, error) {
	switch {
	case len(names) == 0:
		return nil, invalid("", "there is no name: give at least one")
	case locker.AskedBy(opts...).MinHold != 0:
		return nil, invalid("", "MinHold is not possible where several names are locked: lock one name for all of them")
	}
	_, lease, err := lockAny(ctx, l, names, opts)
	return lease, err
}

// lockAny returns the number of the name, too.
func lockAny(ctx context.Context, l locker.Locker, names []string, opts []locker.Option) (int, *locker.Lease, error) {
	n, lease, err := tryLockAny(ctx, l, names, opts)
	if e, ok := err.(*locker.Error); ok && !mayPass(err) { //nolint:errorlint // a Locker's own, whole
		return n, nil, &locker.Error{Op: "lock", Name: e.Name, Err: e.Err}
	}
	if err == nil || !mayPass(err) {
		return n, lease, err
	}
	waitCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	answers := make(chan answer)
	for i, name := range names {
		go lockOneOfAny(waitCtx, l, name, opts, func(a answer) { a.name = i; answers <- a })
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
			return a.name, a.lease, a.err
		}
		if a.ends {
			err = telling(err, a.err)
		}
	}
	return 0, nil, err
}

// tryLockAny locks the first of names that is free, and no other. It does not wait.
func tryLockAny(ctx context.Context, l locker.Locker, names []string, opts []locker.Option) (
	n int, lease *locker.Lease, err error) {
	for i, name := range names {
		lease, failed := l.TryLock(ctx, name, opts...)
		if failed == nil || !mayPass(failed) {
			return i, lease, failed
		}
		err = telling(err, failed)
	}
	return 0, nil, err
}

// answer is what one of several names has come to: a lease or the last error, if it ends;
// otherwise the outage that keeps it from being asked for, or nil when that is over.
type answer struct {
	name  int
	ends  bool
	lease *locker.Lease
	err   error
}

// lockOneOfAny locks name for LockAny. When Lock has run out of patience, the name is tried
// again and again: others may come to wait for it alone.
func lockOneOfAny(ctx context.Context, l locker.Locker, name string, opts []locker.Option, tell func(answer)) {
	for {
		lease, err := l.Lock(ctx, name, opts...)
		for outage := false; ; outage = true {
			if err == nil || ctx.Err() != nil || !mayPass(err) {
				tell(answer{ends: true, lease: lease, err: err})
				return
			}
			if errors.Is(err, locker.ErrHeld) {
				if outage {
					tell(answer{})
				}
				break
			}
			tell(answer{err: err})
			if clock.Sleep(ctx, clock.Jitter(time.Second)) != nil {
				if e, ok := err.(*locker.Error); ok { //nolint:errorlint // only the outermost
					err = e.Err
				}
				err = &locker.Error{Op: "lock", Name: name, Err: fmt.Errorf("%w while waiting: %w", ctx.Err(), err)}
				continue
			}
			lease, err = l.TryLock(ctx, name, opts...)
		}
	}
}

// mayPass reports whether another name, or the same one later, may be had after err.
func mayPass(err error) bool {
	return errors.Is(err, locker.ErrHeld) || errors.Is(err, locker.ErrUnavailable)
}

// telling returns the one of two errors that may be told for both: ErrHeld never
// stands for an outage.
func telling(a, b error) error {
	if a == nil || errors.Is(a, locker.ErrHeld) && !errors.Is(b, locker.ErrHeld) {
		return b
	}
	return a
}
