// Package locker is one interface for distributed locks, with many lock
// services behind it.
//
// A program or a library takes a [Locker] and asks it for leases on names. A
// [Client] is a Locker on one [Backend]; the backends are packages of their
// own: memory (one process), file (one host), single (one Redis), redlock (a
// majority of independent Redis servers), postgres, etcd and zookeeper. This
// package needs nothing but the standard library.
//
//	client := locker.New(memory.New(), nil)
//	defer client.Close()
//
//	err := locker.Do(ctx, client, "invoice/1234", func(ctx context.Context, lease *locker.Lease) error {
//		return send(ctx, invoice) // ctx ends if the lease is lost
//	})
//
// With [Openers.Open] a URL decides which service it is.
//
// # Leases
//
// A lock in a network service is a lease: it ends by itself when its holder
// does not renew it, so that a dead holder does not keep everybody out. The
// Client renews each lease every third of its TTL until it is unlocked. A holder
// has to know when its lease is over:
//
//   - [Lease.Until] is the time up to which the holder may act. It is counted
//     from before the request that granted or renewed the lease was sent, and
//     leaves room for clocks that run at different speeds.
//   - [Lease.Done], [Lease.Context] and the context that [Do] gives to its
//     function end at that time, on a timer of their own: no request that
//     hangs delays them.
//   - A renewal that fails is not a loss, it is tried again until Until. A
//     service that says that the lock is gone ends the lease at once, and it is
//     never acquired again behind its holder's back.
//
// A lease ends too early when the holder's own clock is stepped forward: Until
// is kept in wall time too, since the monotonic clock stands still while a machine
// sleeps. It ends too late only if what [Guarantees] names as its ground does not
// hold.
//
// # What no lease can do
//
// A holder can be paused at any instruction, for longer than any TTL, and
// wake up without knowing. If it then writes, it writes beside the next
// holder. Only the resource that is written to can refuse that: give
// [Lease.Token] along, a number that rises with every holder, and let the
// resource refuse one that is lower than the highest it has seen.
// See Kleppmann, "How to do distributed locking", 2016. Package fencing has what
// resources need for that.
//
// # Failures
//
// Every error matches one of the package's errors, or that of the caller's
// context. ErrHeld and ErrUnavailable are never taken for each other. Lock sits
// an outage out for [Options.Patience]; TryLock never waits.
//
// After a lost reply or a cancelled context, Lock and TryLock return without
// waiting for the service, and the Client asks it in the background to undo what
// may have been done.
//
// # Several locks at once, and locks that stay
//
// [LockAll] and [DoAll] hold several names at once, without deadlocks. [MinHold]
// keeps a lock for longer than its holder: for what is to happen once per hour.
// The examples show these, leader election, and a lease handed to another
// goroutine; those of package memory how a program tests what it does when a
// lock is lost or the service is away.
//
// # Writing a backend
//
// A [Backend] has three methods, and a [Hold] two; what some services can do in
// addition are interfaces with one method each, from [Queuer] to [Checker].
// Package conformance has the tests that a backend must pass, and an example of
// a whole one.
package locker

import (
	"context"
	"errors"
	"slices"
	"time"
)

// Locker gives out leases on names. It is all that a library needs to know:
// it takes a Locker, and its user chooses the service. *[Client] is one.
//
// A name is 1 to MaxNameLen bytes of valid UTF-8. Nothing is reentrant: a
// caller that holds a name and asks for it again waits for itself.
//
// What a lease is worth is bounded: its holder may act as the holder until
// [Lease.Until], and is told by [Lease.Done] when it is over. A holder that is
// stopped by the system between its last look and its write (a paused virtual
// machine, a long garbage collection, a slow disk) may write later than that,
// and no lock service can prevent it. Where that must not happen, give
// [Lease.Token] along with the write and let the resource refuse a token
// lower than the highest it has seen; package fencing is about that (R20).
type Locker interface {
	// Lock waits until it holds name, for as long as ctx allows and no longer:
	// neither the TTL nor anything else bounds the wait.
	//
	// When ctx ends first, Lock returns within milliseconds, whatever the
	// network does, and what it may have left in the service is taken back in
	// the background. The error matches context.Canceled, or
	// context.DeadlineExceeded and, if that is what was in the way, ErrHeld or
	// ErrUnavailable.
	//
	// A service that cannot be asked is asked again for [Options.Patience], by
	// default one TTL, before Lock returns ErrUnavailable: a server that restarts
	// sends nobody away. What cannot get better, such as a wrong password, is an
	// error at once.
	//
	// Callers of one Client get a name in the order in which they asked.
	Lock(ctx context.Context, name string, opts ...Option) (*Lease, error)

	// TryLock does not wait: it returns ErrHeld when another holder, or a
	// caller who asked before, is in the way, and ErrUnavailable when the
	// service cannot be asked; never the one for the other.
	TryLock(ctx context.Context, name string, opts ...Option) (*Lease, error)

	// Guarantees says what the service behind this Locker promises.
	Guarantees() Guarantees
}

// unlockTimeout bounds how long Do waits for its Unlock, and an attempt to
// release what nobody waits for.
const unlockTimeout = 5 * time.Second

// Do calls fn while it holds name, and unlocks after it, also if fn panics.
//
// fn's context ends when ctx does, and, with cause ErrLost, at the moment at
// which the lease is over; fn has to stop then. If the lease was lost, the
// error of Do matches ErrLost even if fn returned nil; it matches fn's own
// error too. If fn was never called, the error is that of Lock.
func Do(ctx context.Context, l Locker, name string, fn func(ctx context.Context, lease *Lease) error, opts ...Option) error {
	lease, err := l.Lock(ctx, name, opts...)
	if err != nil {
		return err
	}
	return lease.do(ctx, fn)
}

// TryDo is [Do] without a wait: if the lock cannot be had at once, fn is not
// called, and the error is that of TryLock. An error that matches ErrHeld means
// that another holder is at it.
func TryDo(ctx context.Context, l Locker, name string, fn func(ctx context.Context, lease *Lease) error, opts ...Option) error {
	lease, err := l.TryLock(ctx, name, opts...)
	if err != nil {
		return err
	}
	return lease.do(ctx, fn)
}

// do calls fn while the lease lasts, and unlocks.
func (l *Lease) do(ctx context.Context, fn func(ctx context.Context, lease *Lease) error) (err error) {
	fnCtx, cancel := l.Context(ctx)
	defer func() {
		cancel()
		err = lateUnlock(ctx, l, err)
	}()
	return fn(fnCtx, l)
}

// lateUnlock unlocks for a caller whose context may be over, and most often is
// when it matters that the lock is given back (R9). It adds its error to err.
func lateUnlock(ctx context.Context, l interface{ Unlock(context.Context) error }, err error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), unlockTimeout)
	defer cancel()
	if unlockErr := l.Unlock(ctx); unlockErr != nil {
		return errors.Join(err, unlockErr)
	}
	return err
}

// Leases are leases on several names, held at the same time. See [LockAll].
type Leases []*Lease

// LockAll waits until it holds all the names at once, or returns an error and
// holds none. It locks them in the order of their bytes, whatever their order
// here, so that callers that want some of the same names do not wait for each
// other in a circle; a name that is given twice is locked once. The leases come in
// that order. opts are for each of them. MinHold is not possible: a name that was
// locked could not be given back when another one cannot be locked.
//
// A caller that already holds a name and calls LockAll for others breaks that order
// and may wait for ever. So may callers whose clients have different prefixes.
func LockAll(ctx context.Context, l Locker, names []string, opts ...Option) (held Leases, err error) {
	if (settings{}).with(opts).minHold != 0 {
		return nil, &Error{Op: "lock", Err: invalid("MinHold is not possible for several names at once: lock one name for all of them")}
	}
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
	for i := 0; err == nil && i < len(held); i++ {
		err = held[i].Err()
	}
	if err != nil {
		return nil, lateUnlock(ctx, held, err)
	}
	return held, nil
}

// DoAll is [Do] for several names at once; see [LockAll]. fn's context ends when
// one of the leases is over.
func DoAll(ctx context.Context, l Locker, names []string, fn func(ctx context.Context, leases Leases) error, opts ...Option) (err error) {
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

// Context is [Lease.Context] of all the leases: it ends when one of them is over.
func (ls Leases) Context(parent context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(parent)
	for _, l := range ls {
		inner, end := l.Context(ctx)
		outer := cancel
		ctx, cancel = inner, func() { end(); outer() }
	}
	return ctx, cancel
}

// Unlock unlocks all the leases, the last one first, even if one fails. The error
// matches those of all that failed; see [Lease.Unlock].
func (ls Leases) Unlock(ctx context.Context) error {
	var errs []error
	for _, l := range slices.Backward(ls) {
		errs = append(errs, l.Unlock(ctx))
	}
	return errors.Join(errs...)
}
