// Package locker is one interface for distributed locks, with many lock
// services behind it.
//
// A program or a library takes a [Locker] and asks it for leases on names. A [Client]
// is a Locker on one [driver.Backend], which is a package of its own; with [Open], a URL
// chooses it: memory (one process), file (one host), single (one Redis), redlock (several),
// postgres, etcd, zookeeper. Package conformance has the tests that a backend must pass, and a
// complete example. This package needs only the standard library.
//
//	client := locker.New(memory.New(), nil)
//	defer client.Close()
//
//	err := locker.Do(ctx, client, "invoice/1234", func(ctx context.Context, lease *locker.Lease) error {
//		return send(ctx, invoice) // ctx ends if the lease is lost
//	})
//
// # Leases
//
// A lock in a network service is a lease: it ends by itself if its holder does not
// renew it, so that a dead holder does not keep everybody out. The Client renews each
// lease every third of its TTL until the holder unlocks it. A holder knows when its lease
// is over: [Lease.Until] is the time until which it may act, counted from before the
// request that granted or renewed the lease was sent, with room for clocks that run at
// different speeds. [Lease.Done], [Lease.Context] and the context that [Do] gives to its
// function end then, by a timer of their own: a request that hangs does not delay them.
// A renewal that fails does not end the lease; the Client tries again. If the service says
// that the lock is gone, the lease ends at once, and is never acquired again silently.
//
// A lease ends too early if the holder's own clock is stepped forward: Until counts
// in wall time too, since the monotonic clock stands still while a machine sleeps. A
// lease ends too late only if a condition that [Guarantees] names does not hold.
//
// # What no lease can do
//
// A holder can be paused at any instruction (a virtual machine, a garbage collection, a slow
// disk), for longer than any TTL, and then write although the next holder has the lock. Only
// the resource can refuse such a write: send [Lease.Token] along, a number that rises with
// every holder, and let the resource refuse one that is lower than the highest it has seen
// (Kleppmann, "How to do distributed locking", 2016). Package fencing has guards that do this.
//
// # Failures
//
// Every error matches one of the package's errors, or the error of the caller's
// context. ErrHeld never stands for an outage, nor ErrUnavailable for another holder.
// After a lost reply or a cancelled context, Lock and TryLock return without waiting for the
// service, and the Client asks it in the background to undo the request, which may have been
// carried out.
//
// # More than one lock
//
// With [Shared], readers hold a name together, and a writer alone. [LockAll] and [DoAll]
// hold several names at once, without deadlocks. [MinHold] keeps a lock for longer than
// its holder runs: for a job that runs once per hour. Packages slots and election are
// built on locks. The examples of package memory show how a program tests what it does
// when a lock is lost or the service is out of reach; [NewLease] is for tests without a
// backend.
package locker

import (
	"context"
	"errors"
	"time"
)

// Locker gives out leases on names. A library takes a Locker, and the library's user
// chooses the service. *[Client] is a Locker.
//
// A name is 1 to MaxNameLen bytes of valid UTF-8. Nothing is reentrant: a caller that holds a name and
// asks for it again would wait for itself. With a context of its lease ([Lease.Context], or that of fn
// in [Do]) the call is refused at once: the error matches ErrInvalid, and that of TryLock also
// ErrHeld. With another context, or another Client, it waits.
//
// The holder of a lease may act until [Lease.Until]. A holder that is paused may write after
// it, and no lock service can prevent that: see "What no lease can do" above.
type Locker interface {
	// Lock waits until it holds name, or until ctx ends. Nothing else bounds the wait
	// for a lock that is held, neither the TTL nor any option.
	//
	// If ctx ends first, Lock returns within milliseconds, whatever the network does. The
	// error matches context.Canceled or context.DeadlineExceeded, and, if another holder
	// or an outage was in the way, also ErrHeld or ErrUnavailable.
	//
	// If the service cannot be asked, Lock tries again for [Options.Patience], by
	// default one TTL, before it returns ErrUnavailable: the restart of a server
	// fails no call. A fault that cannot pass, such as a wrong password, is an error
	// at once.
	//
	// The callers of one Client get a name in the order in which they asked for it.
	Lock(ctx context.Context, name string, opts ...Option) (*Lease, error)

	// TryLock does not wait for the lock. It returns ErrHeld if another has it, and
	// ErrUnavailable if the service cannot be asked; never one for the other. Where an earlier
	// caller of the same Client asks for the name and has no answer yet, TryLock waits for that
	// answer, and asks itself if it does not tell whether the lock is held.
	TryLock(ctx context.Context, name string, opts ...Option) (*Lease, error)

	// Guarantees returns the promises of the service behind this Locker.
	Guarantees() Guarantees
}

// unlockTimeout bounds how long Do waits for its Unlock, and one attempt at a release
// for which nobody waits.
const unlockTimeout = 5 * time.Second

// Do calls fn while it holds name, and unlocks afterwards, also if fn panics.
//
// The context of fn ends when ctx ends, and, with cause ErrLost, at the moment when
// the lease is over; fn has to stop then. If the lease was lost, the error of Do
// matches ErrLost, even if fn returned nil; it matches the error of fn too. If Do did
// not call fn, the error is that of Lock.
//
// The unlock has five seconds, whatever becomes of ctx: if the service is silent, Do returns
// that much later than fn, and the release goes on in the background.
func Do(ctx context.Context, l Locker, name string, fn func(ctx context.Context, lease *Lease) error,
	opts ...Option) error {
	lease, err := orNone(l).Lock(ctx, name, opts...)
	if err != nil {
		return err
	}
	return lease.do(ctx, fn)
}

// TryDo is [Do] without a wait: if the lock cannot be had at once, TryDo does not
// call fn, and the error is that of TryLock. If another holds the lock, the error
// matches ErrHeld.
func TryDo(ctx context.Context, l Locker, name string, fn func(ctx context.Context, lease *Lease) error,
	opts ...Option) error {
	lease, err := orNone(l).TryLock(ctx, name, opts...)
	if err != nil {
		return err
	}
	return lease.do(ctx, fn)
}

// orNone is l or, if that is nil, a Locker whose errors say so.
func orNone(l Locker) Locker {
	if l == nil {
		return New(nil, nil)
	}
	return l
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

// lateUnlock unlocks for a caller whose context may be over (R9). It adds its error
// to err.
func lateUnlock(ctx context.Context, l interface{ Unlock(context.Context) error }, err error) error {
	brief, cancel := context.WithTimeout(context.WithoutCancel(ctx), unlockTimeout)
	defer cancel()
	if unlockErr := l.Unlock(brief); unlockErr != nil {
		return errors.Join(err, matching(ctx, unlockErr)) // the time-out is ours
	}
	return err
}
