// Package locker provides distributed locks: one interface, many lock services behind it.
//
// Programs and libraries take a [Locker] and ask it for leases on names. A [Client] is a Locker that
// uses one [driver.Backend], and each backend is a package of its own. [Open] chooses the backend by
// URL: memory (one process), file (one host), single (one Redis), redlock (several), postgres, etcd,
// zookeeper. Package conformance contains the tests that a backend must pass, and a complete example.
// This package needs only the standard library.
//
//	client, err := locker.New(memory.New(), nil)
//	if err != nil {
//		return err
//	}
//	defer client.Close()
//
//	err = locker.Do(ctx, client, "invoice/1234", func(ctx context.Context) error {
//		return send(ctx, invoice) // ctx ends if the lease is lost
//	})
//
// # Leases
//
// A lock in a network service is a lease: it expires unless its holder renews it, so a dead holder
// cannot keep the others out. The Client renews each lease every third of its TTL until the holder
// unlocks it. [Lease.Until] is the time until which the holder may act. It counts from before the
// request that granted or renewed the lease was sent, and leaves room for clocks that run at different
// speeds. [Lease.Done], [Lease.Context] and the context that [Do] gives to its function end at that
// time. They have a timer of their own, so a request that hangs does not delay them. A failed renewal
// does not end the lease; the Client tries again. If the service reports that the lock is gone, the
// lease ends at once. A lost lease is never silently acquired again.
//
// A lease ends too early if the holder's own clock is stepped forward: Until also counts in wall time,
// because the monotonic clock stops while a machine sleeps. A lease ends too late only if a condition
// that [Guarantees] names does not hold.
//
// # What no lease can do
//
// A holder can be paused at any instruction (by a virtual machine, a garbage collector, a slow disk)
// for longer than any TTL, and then write although the next holder has the lock. Only the resource can
// refuse such a write. Send [Lease.Token] with it, a number that increases with every holder, and let
// the resource refuse a token lower than the highest it has seen (Kleppmann, "How to do distributed
// locking", 2016). Package fencing has guards that do this.
//
// # Failures
//
// Every error matches one of the package's errors, or the error of the caller's context. ErrHeld never
// stands for an outage, and ErrUnavailable never stands for another holder. After a lost reply or a
// canceled context, Lock and TryLock return without waiting for the service. The request may have been
// carried out, so the Client asks the service in the background to undo it.
//
// # More than one lock
//
// With [Shared], readers hold a name together, and a writer holds it exclusively. [LockAll] and [DoAll]
// hold several names at once, without deadlocks. [MinHold] keeps a lock for longer than its holder
// runs, as for a job that runs once per hour. Packages slots and election are built on locks. Package
// lockertest lets a program test what it does when a lock is lost or the service is unavailable.
package locker

import (
	"context"
	"time"

	"github.com/golockers/locker/internal/oneline"
)

// Locker grants leases on names. A library takes a Locker, and its user chooses the service. *[Client]
// is a Locker.
//
// A name is 1 to MaxNameLen bytes of valid UTF-8. Nothing is reentrant: a caller that already holds a
// name and asks for it again would wait for itself. If its context is inside that lease (from
// [Lease.Context] or [Do]), the call is refused at once. The error matches ErrInvalid, and that of
// TryLock also ErrHeld. With another context, or on another Client, the call waits.
//
// The holder of a lease may act until [Lease.Until]. A paused holder may write later, and no lock
// service can prevent that: see "What no lease can do" above.
type Locker interface {
	// Lock waits until it holds name, ctx ends, or [MaxWait] has passed. Nothing else bounds the wait
	// for a held lock; the TTL does not.
	//
	// If ctx ends first, Lock returns within milliseconds, whatever the network does. The error matches
	// context.Canceled or context.DeadlineExceeded, and also ErrHeld or ErrUnavailable if another
	// holder or an outage was in the way. After MaxWait, the error matches only ErrHeld or
	// ErrUnavailable. A context's deadline also applies to the work under the lock if that work uses
	// the same context; MaxWait does not.
	//
	// If the service cannot be asked, Lock keeps trying for [Options.OutageTimeout], by default one
	// TTL, before it returns ErrUnavailable: a server restart fails no call. A permanent fault, such as
	// a wrong password, is an error at once.
	//
	// Callers of one Client get a name in the order in which they asked for it.
	Lock(ctx context.Context, name string, opts ...Option) (*Lease, error)

	// TryLock does not wait for the lock. It returns ErrHeld if another holder has it, and
	// ErrUnavailable if the service cannot be asked, never one for the other. If an earlier call of the
	// same Client is asking for the name, TryLock waits to learn from it which of the two is true, and
	// asks itself if it learns neither.
	TryLock(ctx context.Context, name string, opts ...Option) (*Lease, error)
}

// unlockTimeout bounds how long Do waits for its Unlock, and each background attempt at a release.
const unlockTimeout = 5 * time.Second

// Do calls fn while it holds name, and unlocks afterwards, even if fn panics.
//
// The context of fn ends when ctx ends, or with cause ErrLost at the moment the lease ends; fn must
// stop then. If the lease was lost, the error of Do matches ErrLost even if fn returned nil, and also
// matches the error of fn. If Do did not call fn, the error is that of Lock. In fn, [FromContext]
// returns the lease, for example to read its token.
//
// The unlock gets five seconds, even if ctx has ended. If the service does not answer, Do returns that
// much later than fn, and the release continues in the background.
func Do(ctx context.Context, l Locker, name string, fn func(ctx context.Context) error, opts ...Option) error {
	lease, err := orNone(l).Lock(ctx, name, opts...)
	if err != nil {
		return err
	}
	return do(ctx, lease, fn)
}

// TryDo is [Do] without waiting: if the lock is not available at once, TryDo does not call fn and
// returns the error of TryLock. It matches ErrHeld if another holder has the lock.
func TryDo(ctx context.Context, l Locker, name string, fn func(ctx context.Context) error, opts ...Option) error {
	lease, err := orNone(l).TryLock(ctx, name, opts...)
	if err != nil {
		return err
	}
	return do(ctx, lease, fn)
}

// orNone returns l or, if l is nil, a Locker whose errors say so.
func orNone(l Locker) Locker {
	if l == nil {
		return (*Client)(nil)
	}
	return l
}

// holding is a Lease, or Leases.
type holding interface {
	Context(parent context.Context) (context.Context, context.CancelFunc)
	Unlock(ctx context.Context) error
}

// do calls fn while h lasts, and unlocks even if ctx has ended (R9). The context of fn ends first.
func do(ctx context.Context, h holding, fn func(ctx context.Context) error) (err error) {
	fnCtx, cancel := h.Context(ctx)
	defer func() {
		cancel()
		brief, done := context.WithTimeout(context.WithoutCancel(ctx), unlockTimeout)
		defer done()
		if unlockErr := h.Unlock(brief); unlockErr != nil {
			err = oneline.Join(err, matching(ctx, unlockErr)) // the time-out is ours
		}
	}()
	return fn(fnCtx)
}
