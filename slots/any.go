package slots

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/golockers/locker"
	"github.com/golockers/locker/internal/clock"
)

// LockAny waits until it holds exactly one of the names. It takes the first free name. If none is free,
// it waits for all of them and keeps the first that it gets; any other name that may have been locked
// is released in the background. [locker.Lease.Name] says which one it holds. opts apply to every
// request, but a MaxWait bounds the whole call and still lets it ask for each name once. MinHold is not
// possible, because it would keep a name locked that LockAny does not need.
//
// At most 16 requests are in flight at once. With more names, LockAny waits for the first 15 and asks
// for the others in turn: for each once a second or, if they are more than a hundred, for a hundred per
// second. So it may notice that much later that one of those is free: with 1,000 names after ten
// seconds, or later if an answer takes more than ten milliseconds. All calls of a process with the same
// Locker together ask for at most a hundred names per second in turn: each of a thousand calls with
// more than 16 names asks for one in ten seconds, and notices that late that it is free or that the
// service cannot be asked.
//
// A name that ctx itself holds ([locker.Lease.Context]) counts as held. If ctx holds all of them, the
// error matches ErrInvalid.
//
// If the service cannot be asked for a name, the name is left out while there are others, and tried
// again about every second. The error is that of one of the names. It matches ErrHeld only if all names
// are held.
func LockAny(ctx context.Context, l locker.Locker, names []string, opts ...locker.Option) (*locker.Lease, error) {
	switch {
	case l == nil:
		return nil, invalid("", "the Locker is nil")
	case len(names) == 0:
		return nil, invalid("", "there is no name: give at least one")
	case locker.AskedBy(opts...).MinHold != 0:
		return nil, invalid("", "MinHold is not possible for several names: lock one name for all of them")
	case negativeWait(opts):
		return nil, invalid("", noNegativeWait)
	}
	_, lease, err := lockAny(ctx, newWait(l, opts), names)
	return lease, err
}

// negativeWait reports whether opts have an invalid MaxWait: requests only get what is left of it, so
// they do not check it.
func negativeWait(opts []locker.Option) bool {
	d := locker.AskedBy(opts...).MaxWait
	return d != nil && *d < 0
}

const noNegativeWait = "a MaxWait below 0 is not possible: give a positive duration, or 0 for no wait"

// wait is how a call waits.
type wait struct {
	locker.Locker
	opts  []locker.Option
	until time.Time // when MaxWait has passed; zero: never
}

func newWait(l locker.Locker, opts []locker.Option) *wait {
	w := &wait{Locker: l, opts: opts}
	if d := locker.AskedBy(opts...).MaxWait; d != nil {
		w.until = time.Now().Add(*d)
	}
	return w
}

func (w *wait) over() bool { return !w.until.IsZero() && !time.Now().Before(w.until) }

// lock waits for name for the time that is left.
func (w *wait) lock(ctx context.Context, name string) (*locker.Lease, error) {
	return w.Lock(ctx, name, w.within(max(0, time.Until(w.until)))...)
}

// try locks name if it is free.
func (w *wait) try(ctx context.Context, name string) (*locker.Lease, error) {
	if w.until.IsZero() {
		return w.TryLock(ctx, name, w.opts...)
	}
	return w.Lock(ctx, name, w.within(0)...)
}

func (w *wait) within(d time.Duration) []locker.Option {
	if w.until.IsZero() {
		return w.opts
	}
	return append(slices.Clip(w.opts), locker.MaxWait(d))
}

// context returns a context that also ends when MaxWait has passed.
func (w *wait) context(ctx context.Context) (context.Context, context.CancelFunc) {
	if w.until.IsZero() {
		return ctx, func() {}
	}
	return context.WithDeadline(ctx, w.until)
}

// atOnce is how many requests of one call are in flight at once.
const atOnce = 16

// lockAny is LockAny, and also returns the index of the name.
func lockAny(ctx context.Context, w *wait, names []string) (int, *locker.Lease, error) {
	n, lease, own, err := tryLockAny(ctx, w.try, names)
	if err == nil || !mayPass(err) || len(own) == len(names) || w.over() {
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
		go lockOneOfAny(waitCtx, w, name, func(a answer) { a.name = i; answers <- a })
	}
	asking := waited
	if inTurn != nil {
		asking++
		go lockInTurn(waitCtx, w, names, inTurn, err, func(a answer) { answers <- a })
	}
	away := make(map[int]error) // names that a request waits for and the service cannot be asked for
	row := 0                    // how many of the other names failed with an outage in a row
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
		if a.lease != nil || ctx.Err() == nil && (gone && !w.over() || !mayPass(a.err)) {
			go func() { // waitCtx ends the requests still in flight
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

// tryLockAny locks the first free name, and no other, without waiting. own are the names that ctx
// itself holds.
func tryLockAny(ctx context.Context, try func(context.Context, string) (*locker.Lease, error), names []string) (
	n int, lease *locker.Lease, own map[int]bool, err error) {
	for i, name := range names {
		lease, failed := try(ctx, name)
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

// answer is the state of one of several names. If it ends, it has a lease or the last error; otherwise
// err is why the name is not locked now, or nil when an outage has ended.
type answer struct {
	name   int
	ends   bool
	inTurn bool // it is asked for in turn
	lease  *locker.Lease
	err    error
}

// lockInTurn asks for names in turn until it has one. last is the earlier answer for all of them.
func lockInTurn(ctx context.Context, w *wait, names []string, inTurn []int, last error, tell func(answer)) {
	pause := max(time.Second/time.Duration(len(inTurn)), turnTime)
	t, leave := turnsOf(w.Locker)
	defer leave()
	pausing, cancel := w.context(ctx)
	defer cancel()
	said := slices.Repeat([]error{last}, len(inTurn)) // the last answer for each, unless ctx cut it short
	for i := 0; ; i = (i + 1) % len(inTurn) {
		a := answer{name: inTurn[i], inTurn: true}
		if clock.Sleep(pausing, clock.Jitter(pause)) == nil && t.take(pausing) == nil {
			a.lease, a.err = w.try(ctx, names[a.name])
			if ctx.Err() == nil || !errors.Is(a.err, ctx.Err()) {
				a.ends, said[i] = a.err == nil || !mayPass(a.err), a.err
			}
		} else {
			last = locker.ErrHeld // the caller's own names count as held
			for _, err := range said {
				last = telling(last, err)
			}
			a.ends, a.err = true, whileWaiting(ctx, names[a.name], last)
		}
		if tell(a); a.ends {
			return
		}
	}
}

// whileWaiting is the error of a wait that ctx or MaxWait has ended.
func whileWaiting(ctx context.Context, name string, last error) error {
	if e, ok := last.(*locker.Error); ok { //nolint:errorlint // only the outermost
		name, last = e.Name, e.Err
	}
	if ctx.Err() == nil {
		return &locker.Error{Op: "lock", Name: name, Err: last}
	}
	return &locker.Error{Op: "lock", Name: name, Err: fmt.Errorf("%w while waiting: %w", ctx.Err(), last)}
}

// asLock returns err as an error of Lock.
func asLock(err error) error {
	if e, ok := err.(*locker.Error); ok { //nolint:errorlint // a Locker's own, whole
		return &locker.Error{Op: "lock", Name: e.Name, Err: e.Err}
	}
	return err
}

// lockOneOfAny locks name for LockAny. If an outage was too long for Lock, it tries the name again and
// again: it may be the only name left to wait for.
func lockOneOfAny(ctx context.Context, w *wait, name string, tell func(answer)) {
	pausing, cancel := w.context(ctx)
	defer cancel()
	for {
		lease, err := w.lock(ctx, name)
		for outage := false; ; outage = true {
			if err == nil || ctx.Err() != nil || w.over() || !mayPass(err) {
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
			if clock.Sleep(pausing, clock.Jitter(time.Second)) != nil {
				err = whileWaiting(ctx, name, err)
				continue
			}
			lease, err = w.try(ctx, name)
		}
	}
}

// isOwn reports whether err, of a TryLock, says that the caller's own context holds the name.
func isOwn(err error) bool {
	return errors.Is(err, locker.ErrInvalid) && errors.Is(err, locker.ErrHeld)
}

// mayPass reports whether, after err, another name may be available, or the same one later.
func mayPass(err error) bool {
	return errors.Is(err, locker.ErrHeld) || errors.Is(err, locker.ErrUnavailable) || isOwn(err)
}

// telling returns the one of two errors that may be reported for both: ErrHeld never stands for an
// outage, and the caller's own names count as held.
func telling(a, b error) error {
	if a == nil || isOwn(a) || errors.Is(a, locker.ErrHeld) && !errors.Is(b, locker.ErrHeld) && !isOwn(b) {
		return b
	}
	return a
}
