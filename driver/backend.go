package driver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/golockers/locker/internal/clock"
)

// Backend is a lock service as the engine sees it. It is for implementers: programs
// that want a lock give it to locker.New and use the Client, which does what is the same for
// every service: it waits in line, polls, renews, ends leases in time, and takes back what
// requests with an unknown outcome may have left.
//
// A Backend has no policy: it does not retry when the service has answered or is out of
// reach (its driver may repeat a request whose connection was closed), does not renew leases
// on its own, and never decides that a lease is over. Its methods may be called from many goroutines
// at once. Package conformance has the suite that every Backend has to pass.
type Backend interface {
	// Acquire asks the service for req.Name once. It returns when the answer is known
	// or ctx is done, whichever is first. ctx may last for longer than the call: what
	// Acquire makes of it, such as another context, Acquire has to end. It returns
	//
	//   - a Grant with a Hold, if the lock is granted;
	//   - a Grant that is Refused, if another holder has the lock: at once, unless req.Wait
	//     says that it waits;
	//   - an error that matches ErrUnavailable, if the service cannot be asked;
	//   - another error, if the service refuses the client (wrong credentials, no permission),
	//     and trying again does not help;
	//   - the error together with a Grant whose Hold is set, if the outcome is not known: the
	//     reply was lost, ctx ended with the request in flight, or one of several copies of it
	//     may have been granted. The engine then calls Undo of the Hold;
	//   - the error together with a Grant that is Refused, if ctx ended while the request waited
	//     for a lock that another was known to have. Beside another error, Refused means nothing.
	//
	// Without an error, exactly one of Hold and Refused is set: the engine takes nothing else for
	// a grant.
	//
	// The error of a call that the end of ctx has ended matches ctx.Err(), whatever the cause of ctx is.
	//
	// The backend bounds each single request that it sends, here and in a Hold, by a time of
	// its own, also if ctx never ends: the engine cannot tell a request that hangs from one that
	// waits its turn, and all callers behind it in line wait as long. After that time, the error
	// matches ErrUnavailable.
	//
	// A driver may repeat a request whose reply was lost: a request that finds its
	// own Owner in place has been granted the lock.
	Acquire(ctx context.Context, req Request) (Grant, error)

	// Guarantees returns the promises of the backend, always the same. It does no
	// I/O.
	Guarantees() Guarantees

	// Close ends the connections, sessions and goroutines that the backend has
	// started itself, and nothing that its user has given it. Before, the engine has
	// released all holds. Afterwards, Acquire returns ErrClosed, and so does one that waits
	// in a queue. The engine waits 1.5
	// seconds or more for Close, and then lets it go on in the background.
	Close() error
}

// Request is the argument of [Backend.Acquire].
type Request struct {
	// Name is the lock's name with the client's prefix in front: valid UTF-8,
	// 1 to MaxNameLen+MaxPrefixLen bytes, case-sensitive. The backend encodes
	// it so that no two names meet and none reaches outside its own space.
	Name string

	// Owner marks this attempt and no other: 40 hexadecimal digits of fresh
	// randomness. A release compares the whole stored value.
	Owner string

	// Label describes the holder to people, for Inspect: printable UTF-8 of at most
	// MaxLabelLen bytes. It plays no part in deciding who holds the lock.
	Label string

	// TTL is how long the lock may outlive its last renewal. It is within the bounds
	// of the backend's Guarantees. A service that can only grant more (whole seconds)
	// does so and says it in Validity.
	TTL time.Duration

	// MinHold, which is 0 for most requests, asks the service to keep the lock at
	// least that long after the grant, even if the lock is never renewed and its
	// client dies. Neither a renewal nor [Validity] makes this time shorter. MinHold
	// is at most Guarantees.MaxMinHold. The engine does not end a hold before that time is over, with
	// two exceptions: what nobody was given is undone at once, and what its holder gives back
	// (GiveBack of its lease) is released at once. So Release, Undo and Pass remove the lock whatever its MinHold.
	MinHold time.Duration

	// Wait: the caller waits. A service with a queue of its own ([Queue]) then
	// waits in it until ctx is done, and leaves it; beside its error, the Grant is Refused
	// if it knew that the lock was held. Without a queue it refuses the request,
	// at once or after a time in which it waits as well as it can: then the engine waits,
	// helped by a [Notifier], and calls again with a new Owner. It may leave a note that
	// somebody waits, as it does not without Wait.
	Wait bool

	// Shared asks for the lock together with others that ask for it shared: many
	// sharers hold a name at the same time, each with a Hold, a TTL and a MinHold of
	// its own, and nobody holds it alone meanwhile. It is set only if the Guarantees
	// say that the backend has shared locks.
	//
	// A request without Shared that waits for sharers to end keeps new ones out, so that
	// it gets its turn: by its place in the queue of the service or, where the engine
	// asks again, by the note of a [Refusal]. A run of sharers at the head of a queue
	// gets in together.
	//
	// Sharers that hold at the same time have the same token. It is greater than that
	// of every holder before, and smaller than that of every later one that holds the
	// name alone; or they have none, if the Guarantees say so. MaxSharers hold a name
	// at most; beyond that, the error matches ErrRefused.
	Shared bool

	// Lost is for services that report, unasked, that a hold is gone (by a watch, or
	// the end of a session): the backend then calls Lost. Lost does not block and may
	// be called at any time, from any goroutine, more than once; it has no effect for
	// an attempt that was not granted or is over. If the service reports nothing, the
	// backend does not call it; if it reports a removal, it does so to each holder, of sharers
	// to all. The engine never passes nil.
	Lost func()

	// Queued is for services that keep a queue: with Wait, the backend calls it
	// when it has learned that another has the lock, or is before it in the queue.
	// The engine can then tell "held" from "no answer yet" to callers that wait
	// behind this attempt in the Client: a TryLock of the same Client waits for it, or for the end of the
	// attempt. It does not block, may be called more than once, and has no meaning after Acquire has returned.
	// The engine never passes nil with Wait.
	Queued func()

	_ struct{}
}

// Grant is the answer to one Acquire: a lock that was granted, or a refusal; or, beside an
// error, a lock that may have been granted, or what was known when the error ended the wait.
type Grant struct {
	Hold     Hold
	Refused  *Refusal // another has the lock; nil: granted, or not known
	Validity Validity
	// Token is the fencing token, at most MaxToken; 0 where the backend has none.
	Token uint64
	// Session: something keeps the hold beyond its TTL, until it is removed: a session of the
	// backend, which may outlive the Client.
	Session bool
}

// Refusal says that another has the lock, and for how long that can last, so that the engine
// knows when to ask again. Its zero value is a refusal of which nothing more is known.
type Refusal struct {
	// Remaining is the time after which the lock is free unless its holder
	// renews it. Zero or less: not known.
	Remaining time.Duration

	// AskWithin is for a request that waits in vain for sharers to end, and has left a
	// note in the service which keeps new sharers out. The note ends after a second at
	// most, so that a dead waiter is in nobody's way; the engine asks again within
	// AskWithin, which renews it. 0: there is no such note.
	AskWithin time.Duration

	// Leave removes what the service notes for this caller. The engine calls that of the
	// last refusal that had one, once and in the background, if the caller stops waiting,
	// and Close waits for it. A grant removes the note by itself. Without AskWithin it is
	// the place of the whole client in a line of the service: it is left only if no other
	// caller of the client waits for the name, and one that comes meanwhile is for the
	// backend to look after. nil: there is nothing to remove.
	Leave func(ctx context.Context) error

	// Undo removes what this attempt may have left although it was refused, as where one of
	// several copies of its request may still be granted. It promises what [Hold].Undo does.
	// nil: nothing can be left. Beside an error, that of the Grant's Hold is called in its place,
	// if there is one.
	Undo func(ctx context.Context) error

	_ struct{}
}

// Validity is the time for which a service has promised to keep a hold.
type Validity struct {
	// Since is the local time, with its monotonic reading, from before the granted
	// request was sent.
	Since time.Time
	// TTL is the time that the service granted: that of the Request, rounded up to a whole
	// second at most, and longer only for a session. 0: the hold has no deadline, and lasts
	// as long as the process.
	TTL time.Duration
	// Drift is subtracted from the TTL, since the two clocks may run at different
	// speeds. It is not negative. 0: the engine's default, 1 % of the TTL + 2 ms.
	Drift time.Duration
}

// Check returns an error for values with which a lease would last longer than the service
// keeps it. The engine checks each Validity that it gets.
func (v Validity) Check() error {
	switch {
	case v.TTL < 0 || v.Drift < 0:
		return fmt.Errorf("a TTL of %v with a Drift of %v was granted: neither may be negative", v.TTL, v.Drift)
	case v.TTL > 0 && v.Since.IsZero():
		return fmt.Errorf("a TTL of %v was granted without Since, from which it counts", v.TTL)
	}
	return nil
}

// Check returns an error for a Grant that makes no lease. It is for the engine.
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

// Hold is a lock that one attempt holds. Its methods may be called at the same time,
// and after the hold is gone.
type Hold interface {
	// Renew makes the hold last for its TTL from now on, and returns the new
	// validity. An error that matches ErrLost means that the hold is certainly gone.
	// Any other error means that the outcome is not known; the engine tries again
	// while the validity lasts. If the key of a lock is gone, Renew never acquires
	// the lock again. For a hold without a deadline (Validity.TTL 0), the
	// engine still calls Renew every third of the requested TTL, to find out whether
	// it lasts.
	Renew(ctx context.Context) (Validity, error)

	// Release removes the hold. nil: the hold was there, as far as the answers can tell, and
	// is now gone. An error that matches ErrLost: the hold was not there. Any other error: the
	// outcome is not known, and the engine tries again in the background. Release removes only
	// what this very attempt has stored.
	Release(ctx context.Context) error

	// Undo removes whatever this attempt may have stored in the service, whether or not it
	// was granted. The engine calls it after an unknown outcome, a failed Release or a lost
	// lease, again and again until it returns nil. It may run beside Acquire, Renew or Release
	// of this attempt, and beside itself. It returns nil when one of these is so:
	//
	//   - Nothing of the attempt is left, and no request of it can arrive any more. Nothing
	//     else settles a hold without a deadline.
	//   - The longest time for which any request has asked, renewals and MinHold included, has
	//     passed since the last one could have been sent, also if no request gets through.
	//     What arrives even later lives as long as its request has asked.
	//   - What keeps holds for longer than that, as a session does, has made the attempt void,
	//     or has ended.
	//
	// An error that matches ErrLost: nothing is there now, but it may still arrive. Any other
	// error: it is not known, or not yet so.
	//
	// See [Undo] for services that end holds by their TTL.
	Undo(ctx context.Context) error
}
