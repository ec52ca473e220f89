package driver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/golockers/locker/internal/clock"
)

// Backend is a lock service as the engine sees it. It is for implementers: programs that want a lock
// pass it to locker.New and use the Client, which does what is the same for every service. The Client
// waits in line, polls, renews, ends leases on time, and takes back what requests with an unknown
// outcome may have left.
//
// A Backend has no policy: it does not retry when the service has answered or is unreachable (its
// driver may repeat a request whose connection was closed), does not renew leases on its own, and never
// decides that a lease has ended. Its methods may be called from many goroutines at once. Package
// conformance has the suite that every Backend must pass.
type Backend interface {
	// Acquire asks the service for req.Name once. It returns when the answer is known or ctx is done,
	// whichever is first. ctx may outlive the call, so Acquire must end what it derives from it, such
	// as another context. It returns
	//
	//   - a Grant with a Hold, if the lock is granted;
	//   - a Grant that is Refused, if another holder has the lock: at once, unless req.Wait makes it
	//     wait;
	//   - an error that matches ErrUnavailable, if the service cannot be asked;
	//   - another error, if the service refuses the client (wrong credentials, no permission),
	//     and trying again does not help;
	//   - an error together with a Grant whose Hold is set, if the outcome is unknown: the reply was
	//     lost, ctx ended with the request in flight, or one of several copies of the request may have
	//     been granted. The engine then calls the Hold's Undo;
	//   - an error together with a Grant that is Refused, if ctx ended while the request waited for a
	//     lock known to be held by another. With any other error, Refused means nothing.
	//
	// Without an error, exactly one of Hold and Refused is set: the engine accepts nothing else as a
	// grant.
	//
	// If the end of ctx ended the call, the error matches ctx.Err(), whatever the cause of ctx.
	//
	// The backend bounds every request that it sends, here and in a Hold, by a timeout of its own, even
	// if ctx never ends: the engine cannot tell a request that hangs from one that waits its turn, and
	// all callers behind it in line wait as long. After that timeout, the error matches ErrUnavailable.
	//
	// A driver may repeat a request whose reply was lost: a request that finds its own Owner stored has
	// been granted the lock.
	Acquire(ctx context.Context, req Request) (Grant, error)

	// Guarantees returns the promises of the backend. They never change. It does no I/O.
	Guarantees() Guarantees

	// Close ends the connections, sessions and goroutines that the backend has started itself, and
	// nothing that its user passed to it. The engine has released all holds by then. After Close,
	// Acquire returns ErrClosed, and so does one that waits in a queue. The engine waits at least 1.5
	// seconds for Close, and then lets it continue in the background.
	Close() error
}

// Request is the argument of [Backend.Acquire].
type Request struct {
	// Name is the lock's name with the client's prefix in front: valid UTF-8, 1 to
	// MaxNameLen+MaxPrefixLen bytes, case-sensitive. The backend encodes it so that no two names
	// collide and none reaches outside its own space.
	Name string

	// Owner marks this attempt and no other: 40 hexadecimal digits of fresh
	// randomness. A release compares the whole stored value.
	Owner string

	// Label describes the holder to people, for Inspect: printable UTF-8 of at most
	// MaxLabelLen bytes. It plays no part in deciding who holds the lock.
	Label string

	// TTL is how long the lock may outlive its last renewal. It is within the bounds of the backend's
	// Guarantees. A service that can only grant more (whole seconds) does so and reports it in
	// Validity.
	TTL time.Duration

	// MinHold, which is 0 for most requests, asks the service to keep the lock for at least that long
	// after the grant, even if the lock is never renewed and its client dies. Neither a renewal nor
	// [Validity] shortens this time. MinHold is at most Guarantees.MaxMinHold. If the holder unlocks
	// early, the engine calls [Hold].Release with the time that is left. Only two things end the hold
	// earlier: an attempt that was never given out is undone at once, and a lease that its holder gives
	// back (GiveBack) is released at once. So Release with 0, Undo and Pass remove the lock whatever
	// its MinHold.
	MinHold time.Duration

	// Wait: the caller waits. A service with a queue of its own ([Queue]) then waits in it until ctx is
	// done, and then leaves it; with the error, the Grant is Refused if the lock was known to be held.
	// A service without a queue refuses the request, at once or after waiting as well as it can. The
	// engine then waits, helped by a [Notifier], and calls again with a new Owner. With Wait, and only
	// then, the backend may leave a note in the service that a caller waits.
	Wait bool

	// Shared asks for the lock as a sharer: many sharers hold a name at the same time, each with a
	// Hold, a TTL and a MinHold of its own, and nobody holds it exclusively meanwhile. It is set only
	// if the Guarantees say that the backend has shared locks.
	//
	// An exclusive request that waits for sharers keeps new ones out, so that it gets its turn: by its
	// place in the service's queue or, if the engine asks again, by the note of a [Refusal].
	// Consecutive sharers at the head of a queue are granted together.
	//
	// Concurrent sharers have the same token. It is greater than that of every holder before them, and
	// smaller than that of every later exclusive holder; or they have none, if the Guarantees say so.
	// At most MaxSharers hold a name; beyond that, the error matches ErrRefused.
	Shared bool

	// Lost is for services that report by themselves that a hold is gone (by a watch, or the end of a
	// session): the backend then calls Lost. Lost does not block and may be called at any time, from
	// any goroutine, more than once; it has no effect on an attempt that was not granted or has ended.
	// If the service reports nothing, the backend does not call it. If the service reports a removal,
	// the backend calls it for each holder; if sharers held the lock, for all of them. The engine never
	// passes nil.
	Lost func()

	// Queued is for services that keep a queue: with Wait, the backend calls it when it has learned
	// that another request has the lock, or is ahead in the queue. It lets the engine tell callers
	// behind this attempt in the Client "held" instead of "no answer yet": a TryLock of the same Client
	// waits for it, or for the end of the attempt. It does not block, may be called more than once, and
	// has no effect after Acquire has returned. The engine never passes nil with Wait.
	Queued func()

	_ struct{}
}

// Grant is the answer to one Acquire: a granted lock or a refusal. Together with an error, it is a lock
// that may have been granted, or what was known when the error ended the wait.
type Grant struct {
	Hold     Hold
	Refused  *Refusal // another has the lock; nil: granted, or unknown
	Validity Validity
	// Token is the fencing token, at most MaxToken; 0 where the backend has none.
	Token uint64
}

// Refusal says that another has the lock and how long that can last, so that the engine knows when to
// ask again. The zero value is a refusal without further information.
type Refusal struct {
	// Remaining is the time after which the lock is free unless its holder renews it. Zero or less:
	// unknown.
	Remaining time.Duration

	// AskWithin is for an exclusive request that waits for sharers and has left a note in the service
	// that keeps new sharers out. The note expires within a second, so that a dead waiter blocks
	// nobody. The engine asks again within AskWithin, which renews the note. 0: there is no such note.
	AskWithin time.Duration

	// Leave removes what the service stores for this caller. If the caller stops waiting, the engine
	// calls Leave of the last refusal that has one, once and in the background, and Close waits for it.
	// A grant removes the note by itself. Without AskWithin, the note is the whole client's place in
	// the service's queue: it is removed only if no other caller of the client waits for the name, and
	// the backend must handle a caller that comes meanwhile. nil: there is nothing to remove.
	Leave func(ctx context.Context) error

	// Undo removes what this attempt may have left although it was refused, as where one of several
	// copies of its request may still be granted. It promises what [Hold].Undo does. nil: nothing can
	// be left. With an error, the engine calls the Undo of the Grant's Hold instead, if there is one.
	Undo func(ctx context.Context) error

	_ struct{}
}

// Validity is the time for which a service has promised to keep a hold.
type Validity struct {
	// Since is the local time, with its monotonic reading, before the granted request was sent.
	Since time.Time
	// TTL is the time that the service granted: the Request's TTL, at most rounded up to a whole
	// second, and longer only for a session. 0: the hold has no deadline, and lasts as long as the
	// process.
	TTL time.Duration
	// Drift is subtracted from the TTL, because the two clocks may run at different speeds. It is not
	// negative. 0: the engine's default, 1 % of the TTL + 2 ms.
	Drift time.Duration
}

// Check returns an error for values that would make a lease last longer than the service keeps it. The
// engine checks each Validity that it gets.
func (v Validity) Check() error {
	switch {
	case v.TTL < 0 || v.Drift < 0:
		return fmt.Errorf("a TTL of %v with a Drift of %v was granted: neither may be negative", v.TTL, v.Drift)
	case v.TTL > 0 && v.Since.IsZero():
		return fmt.Errorf("a TTL of %v was granted without Since, from which it counts", v.TTL)
	}
	return nil
}

// Check returns an error for a Grant that cannot become a lease. It is for the engine.
func (g Grant) Check() error {
	if g.Refused != nil {
		return errors.New("it was refused")
	}
	if g.Token > MaxToken {
		return fmt.Errorf("token %d was granted: the highest is %d", g.Token, uint64(MaxToken))
	}
	return g.Validity.Check()
}

// Until returns the time until which the holder may act, with the monotonic reading
// of Since: Since + TTL - Drift, or a hundred years after Since if the hold has no
// deadline.
func (v Validity) Until() time.Time {
	if v.TTL == 0 {
		return v.Since.Add(clock.Century)
	}
	return v.Since.Add(v.TTL - cmp.Or(v.Drift, Drift(v.TTL)))
}

// Drift is the default allowance for two clocks that run at different speeds over d:
// 1 % + 2 ms, as in the Redlock description.
func Drift(d time.Duration) time.Duration { return d/100 + 2*time.Millisecond }

// Hold is a lock that one attempt holds. Its methods may be called concurrently, and after the hold is
// gone.
type Hold interface {
	// Renew makes the hold last for its TTL from now on, and returns the new validity. An error that
	// matches ErrLost means that the hold is certainly gone. After any other error the outcome is
	// unknown; the engine tries again while the validity lasts. If the key of a lock is gone, Renew
	// never acquires the lock again. For a hold without a deadline (Validity.TTL 0), the engine still
	// calls Renew every third of the requested TTL, to find out whether it still exists.
	Renew(ctx context.Context) (Validity, error)

	// Release ends the hold. With keep 0 it removes the lock. Otherwise it marks the lock as kept:
	// nobody holds it any more, it still keeps others out, and the service removes it once keep has
	// passed since it carried out the request: never earlier, and at most Guarantees.MinHoldSlack
	// later, however long the hold would have lasted. keep is what is left of Request.MinHold, so it is
	// 0 for a backend whose MaxMinHold is 0.
	//
	// nil: the hold was there, as far as the answers show, and is now removed or kept. An error that
	// matches ErrLost: the hold was not there. Any other error: the outcome is unknown, and the engine
	// tries again in the background, with the keep that is left by then. So the lock may already be
	// kept: another Release with a keep then returns nil and changes nothing, and one with 0 removes
	// it. Renew, and copies of the acquire that arrive late, find a kept lock gone: neither prolongs
	// it. Release touches only what this very attempt has stored.
	Release(ctx context.Context, keep time.Duration) error

	// Undo removes whatever this attempt may have stored in the service, granted or not, kept or not.
	// The engine calls it after an unknown outcome, a failed Release or a lost lease, again and again
	// until it returns nil. It may run concurrently with Acquire, Renew or Release of this attempt, and
	// with itself. It returns nil when one of these holds:
	//
	//   - Nothing of the attempt is left, and no request of it can arrive any more. For a hold without
	//     a deadline, only this counts.
	//   - The longest time that any request has asked for, including renewals and MinHold, has passed
	//     since the last of them could have been sent, even if no request gets through. What arrives
	//     still later lives as long as its request has asked for.
	//   - Something that keeps holds for longer, such as a session, has made the attempt void, or has
	//     ended.
	//
	// An error that matches ErrLost: nothing is there now, but a request may still arrive. Any other
	// error: the outcome is unknown, or none of these holds yet.
	//
	// See [Undo] for services that end holds by their TTL.
	Undo(ctx context.Context) error
}
