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
// At most 16 requests are under way at once. Of more names, LockAny waits for the first 15, and asks for
// the others in turn: for each once a second, or, of more than a hundred, for a hundred in a second. So it
// may notice as much later that one of those is free: of 1,000 names after ten seconds, or longer where an
// answer takes more than ten milliseconds. All calls of a process with the same Locker ask together for at most
// a hundred names a second in turn: a thousand calls with more than 16 names ask for one each in ten seconds, and
// notice as late that it is free, or that the service cannot be asked.
//
// A name that ctx itself holds ([locker.Lease.Context]) counts as held. If it holds all of them, the
// error matches ErrInvalid.
//
// A name that the service cannot be asked for is left out while there are others, and asked
// for again every second or so. The error is that of one of the names. It matches ErrHeld
// only if all names are held.
func LockAny(ctx context.Context, l locker.Locker, names []string, opts ...locker.Option) (*locker.Lease, error) {
	switch {
	case l == nil:
		return nil, invalid("", "the Locker is nil")
	case len(names) == 0:
		return nil, invalid("", "there is no name: give at least one")
	case locker.AskedBy(opts...).MinHold != 0:
		return nil, invalid("", "MinHold is not possible where several names are locked: lock one name for all of them")
	}
	_, lease, err := lockAny(ctx, l, names, opts)
	return lease, err
}

// atOnce is how many requests of one call are under way at once.
const atOnce = 16

// lockAny returns the number of the name, too.
func lockAny(ctx context.Context, l locker.Locker, names []string, opts []locker.Option) (int, *locker.Lease, error) {
	n, lease, own, err := tryLockAny(ctx, l, names, opts)
	if err == nil || !mayPass(err) || len(own) == len(names) {
		return n, lease, asLock(err)
	}
	most := atOnce
	if len(names) > atOnce || len(own) > 0 {
		most-- // and one request for the others
	}
	waitCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	answers := make(chan answer)
	waited, inTurn := 0, []int(nil)
	for i, name := range names {
		if own[i] || waited == most {
			inTurn = append(inTurn, i)
			continue
		}
		waited++
		go lockOneOfAny(waitCtx, l, name, opts, func(a answer) { a.name = i; answers <- a })
	}
	asking := waited
	if inTurn != nil {
		asking++
		go lockInTurn(waitCtx, l, names, inTurn, opts, func(a answer) { answers <- a })
	}
	away := make(map[int]error) // the names that are waited for, and that the service cannot be asked for
	row := 0                    // how many of the others it could not be asked for, one after the other
	for err = nil; asking > 0; {
		a := <-answers
		switch {
		case a.ends:
			asking--
		case a.inTurn && errors.Is(a.err, locker.ErrUnavailable):
			row++
		case a.inTurn:
			row = 0
			continue
		case a.err == nil:
			delete(away, a.name)
			continue
		}
		if !a.inTurn && a.lease == nil {
			away[a.name] = a.err
		}
		gone := len(away) == waited && row >= min(len(inTurn), atOnce)
		if a.lease != nil || ctx.Err() == nil && (gone || !mayPass(a.err)) {
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
			return a.name, a.lease, asLock(a.err)
		}
		if a.ends {
			err = telling(err, a.err)
		}
	}
	return 0, nil, err
}

// tryLockAny locks the first of names that is free, and no other. It does not wait. It tells which of the
// names are those of ctx's own leases.
func tryLockAny(ctx context.Context, l locker.Locker, names []string, opts []locker.Option) (
	n int, lease *locker.Lease, own map[int]bool, err error) {
	for i, name := range names {
		lease, failed := l.TryLock(ctx, name, opts...)
		switch {
		case isOwn(failed):
			if own == nil {
				own = make(map[int]bool)
			}
			own[i] = true
		case failed == nil || !mayPass(failed):
			return i, lease, nil, failed
		}
		err = telling(err, failed)
	}
	return 0, nil, own, err
}

// answer is what one of several names has come to: a lease or the last error, if it ends;
// otherwise why it is not locked now, or nil when an outage that kept it from being asked for is over.
type answer struct {
	name   int
	ends   bool
	inTurn bool // it is not waited for
	lease  *locker.Lease
	err    error
}

// lockInTurn asks for names in turn until it has one.
func lockInTurn(ctx context.Context, l locker.Locker, names []string, inTurn []int, opts []locker.Option,
	tell func(answer)) {
	pause := max(time.Second/time.Duration(len(inTurn)), turnTime)
	t, leave := turnsOf(l)
	defer leave()
	for i, last := 0, locker.ErrHeld; ; i++ {
		a := answer{name: inTurn[i%len(inTurn)], inTurn: true}
		if clock.Sleep(ctx, clock.Jitter(pause)) == nil && t.take(ctx) == nil {
			a.lease, a.err = l.TryLock(ctx, names[a.name], opts...)
		}
		if a.lease == nil && ctx.Err() != nil {
			a.ends, a.err = true, whileWaiting(ctx, names[a.name], last)
		}
		a.ends = a.ends || a.err == nil || !mayPass(a.err)
		if tell(a); a.ends {
			return
		}
		if last = a.err; isOwn(last) {
			last = locker.ErrHeld
		}
	}
}

// whileWaiting is the error of a wait that ctx has ended.
func whileWaiting(ctx context.Context, name string, last error) error {
	if e, ok := last.(*locker.Error); ok { //nolint:errorlint // only the outermost
		last = e.Err
	}
	return &locker.Error{Op: "lock", Name: name, Err: fmt.Errorf("%w while waiting: %w", ctx.Err(), last)}
}

// asLock is err as that of a Lock.
func asLock(err error) error {
	if e, ok := err.(*locker.Error); ok { //nolint:errorlint // a Locker's own, whole
		return &locker.Error{Op: "lock", Name: e.Name, Err: e.Err}
	}
	return err
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
				err = whileWaiting(ctx, name, err)
				continue
			}
			lease, err = l.TryLock(ctx, name, opts...)
		}
	}
}

// isOwn reports whether err says that the caller's own context holds the name.
func isOwn(err error) bool {
	var own interface{ Nested() }
	return errors.As(err, &own)
}

// mayPass reports whether another name, or the same one later, may be had after err.
func mayPass(err error) bool {
	return errors.Is(err, locker.ErrHeld) || errors.Is(err, locker.ErrUnavailable) || isOwn(err)
}

// telling returns the one of two errors that may be told for both: ErrHeld never
// stands for an outage, and a name of the caller's own counts as held.
func telling(a, b error) error {
	if a == nil || isOwn(a) || errors.Is(a, locker.ErrHeld) && !errors.Is(b, locker.ErrHeld) && !isOwn(b) {
		return b
	}
	return a
}
