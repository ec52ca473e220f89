package locker

import (
	"context"
	"fmt"
	"time"
)

// Backend is a lock service as the engine sees it. It is for implementers:
// programs that want a lock call [New] and use the [Client], which does what
// is the same for every service (waiting in line inside the process, polling,
// renewing, knowing when a lease is over, taking back what an unknown outcome
// may have left).
//
// A Backend is free of policy: it does not retry, does not renew on its own
// for a lease's sake, and never decides that a lease is over. All its methods
// may be called from many goroutines at once. Package conformance holds the
// suite that every Backend has to pass.
type Backend interface {
	// Acquire asks the service for req.Name, once, and returns when the answer
	// is known or ctx is done, whichever is first.
	//
	// When the lock is granted, it returns a Grant with a Hold.
	//
	// When another holder has the lock, what happens depends on req.Wait. A
	// service that keeps a queue of its own waits in it if Wait is set, until
	// ctx is done, and then leaves it; its error matches ErrHeld beside
	// ctx.Err() if it knew that the lock was held. A service without a queue
	// returns a *HeldError (or ErrHeld) at once in both cases: the engine
	// waits and calls again with a new Owner, helped by a [Notifier].
	//
	// When the service cannot be asked, the error matches ErrUnavailable; when
	// it refuses the client (wrong credentials, no permission), the error says
	// so and does not match ErrUnavailable, since trying again does not help.
	//
	// When the outcome is not known (the reply was lost, ctx ended with the
	// request under way), Acquire returns the error together with a Grant
	// whose Hold is set. The engine then takes back in the background what may
	// have been granted (R7): by the Hold's TakeBack until that says that all
	// is settled, or, where the Hold is no [TakeBacker], by its Release,
	// repeatedly for one TTL. A request may still arrive after a Release that
	// found nothing. Where what it leaves would outlive its TTL, because a
	// session keeps it alive, the Hold has to be a TakeBacker.
	//
	// A driver may repeat a request whose reply was lost: one that finds its
	// own Owner in place has been granted the lock (R11).
	Acquire(ctx context.Context, req Request) (Grant, error)

	// Guarantees says what the backend promises: always the same. It does no
	// I/O.
	Guarantees() Guarantees

	// Close ends what the backend itself has opened (connections, sessions,
	// goroutines) and nothing that its creator was given by its user. The
	// engine has released its holds before. Acquire returns ErrClosed after. The
	// engine gives it 1.5 seconds or more, and then lets it go on in the background.
	Close() error
}

// Request is what the engine asks of [Backend.Acquire].
type Request struct {
	// Name is the lock's name with the client's prefix in front: valid UTF-8,
	// 1 to MaxNameLen+MaxPrefixLen bytes, case-sensitive. The backend encodes
	// it so that no two names meet and none reaches outside its own space.
	Name string

	// Owner marks this attempt and no other: 40 hexadecimal digits of fresh
	// randomness (R10). A release compares the whole of what was stored.
	Owner string

	// Label describes the holder to people, for Inspect: printable UTF-8 of
	// at most MaxLabelLen bytes. It has no part in deciding who holds.
	Label string

	// TTL is how long the lock may outlive its last renewal. It lies within
	// the bounds of the backend's Guarantees. A service that can only do more
	// (whole seconds) grants more and says so in Validity.
	TTL time.Duration

	// MinHold, which is 0 for most requests, asks the service to keep the lock
	// at least that long after the grant: also if it is never renewed and its
	// client dies, and a renewal or [Validity] never makes it less. It is not
	// more than MaxMinHold of a [MinHolder], and 0 for every other Backend. The
	// engine does not call Release before that time is over, except to take
	// back an attempt whose outcome was not known and that nobody holds: then
	// Release and TakeBack remove it at once.
	MinHold time.Duration

	// Wait asks a service that has a queue to wait in it.
	Wait bool

	// Lost is for services that tell, unasked, that a hold is gone (a watch,
	// a session's end): the backend calls it then. It does not block and may
	// be called at any time, from any goroutine, more than once; calls for an
	// attempt that was not granted, or is over, have no effect. Where the
	// service tells nothing, the backend leaves it alone. It is never nil
	// when the engine calls.
	Lost func()

	// Queued is for services that keep a queue: with Wait, the backend calls it
	// when it has learned that another has the lock, or is before it in the queue.
	// The engine can then tell "held" from "no answer yet" to callers that wait
	// behind this attempt in the Client. It does not block, may be called more
	// than once, and has no meaning after Acquire has returned. It is never nil
	// when the engine calls with Wait.
	Queued func()

	_ struct{}
}

// Grant is a lock that was granted, or, beside an error, one that may have been.
type Grant struct {
	Hold     Hold
	Validity Validity
	// Token is the fencing token, at most MaxToken; 0 where the backend has none.
	Token uint64
}

// Validity is how long a service has promised to keep a hold.
type Validity struct {
	// Since is the local time, with its monotonic reading, read before the
	// request that was granted was sent (R1).
	Since time.Time
	// TTL is the time that the service granted. 0: the hold has no deadline,
	// it lasts as long as the process does.
	TTL time.Duration
	// Drift is subtracted from the TTL for the difference in speed of the two
	// clocks over that time, and is not negative. 0: the engine's default, 1 % of
	// the TTL + 2 ms.
	Drift time.Duration
}

// check refuses what would make a lease last longer than the service keeps it.
func (v Validity) check() error {
	if v.TTL < 0 || v.Drift < 0 {
		return fmt.Errorf("the backend granted a TTL of %v with a Drift of %v: neither may be negative", v.TTL, v.Drift)
	}
	return nil
}

// Until returns the time up to which the holder may act as the holder, with
// Since's monotonic reading: Since + TTL - Drift. It is the zero time if the
// hold has no deadline.
func (v Validity) Until() time.Time {
	if v.TTL == 0 {
		return time.Time{}
	}
	d := v.Drift
	if d == 0 {
		d = drift(v.TTL)
	}
	return v.Since.Add(v.TTL - d)
}

// Hold is one lock held by one attempt. Its methods may be called at the same
// time, and after the hold is gone.
type Hold interface {
	// Renew makes the hold last for its TTL again and returns what was
	// granted. An error that matches ErrLost: the service says that the hold
	// is gone, for certain. Any other error: the outcome is not known, and
	// the engine asks again while the validity lasts. Renew never acquires a
	// lock again whose key is gone (R12). Without a deadline (Validity.TTL 0)
	// it is still called every third of the requested TTL, to look.
	Renew(ctx context.Context) (Validity, error)

	// Release gives the hold up: nil when it was there and now is not. An
	// error that matches ErrLost: it was not there. Any other error: not
	// known; the engine asks again in the background. It removes what this
	// very attempt has put there and nothing else.
	Release(ctx context.Context) error
}

// The interfaces from here on are optional abilities of a [Backend] or a
// [Hold]. The engine finds them by type assertion, so a Backend that wraps
// another has to pass them on.

// Queuer is implemented by a [Backend] whose service keeps a queue: with
// [Request.Wait], Acquire waits in it. The engine then lets the next caller in
// its own line ask while a release is still under way, since that caller comes
// behind it in the service's queue and is not refused.
type Queuer interface {
	// HasQueue returns true if Acquire with Wait waits in the service's queue.
	HasQueue() bool
}

// Notifier is implemented by a [Backend] without a queue of its own that can
// tell when a name may have become free. It makes waiting prompt; neither
// correctness nor progress rests on it (R14).
type Notifier interface {
	// Notify arranges for wake to be called whenever name may be free, until
	// stop is called. It returns when the service has confirmed it. The engine
	// then asks once more, and if that Acquire (with Wait set) is refused, the
	// release of the lock that was in its way is told; a backend may leave
	// releases that nobody was refused for untold. wake does not block, may be
	// called when nothing has happened, and is called when messages may have
	// been missed. stop does not block on the service.
	Notify(ctx context.Context, name string, wake func()) (stop func(), err error)
}

// Prompt is implemented by a [Backend] that keeps what it promises about its
// contexts by itself: Acquire, and Renew and Release of its holds, return
// within 100 ms after their context ended, whatever the network does. The
// engine then calls Acquire and Release in the goroutine of its own caller.
// Other backends it calls from goroutines made for the purpose, and it leaves
// those behind when they are late (R8). That costs two switches between threads
// per request, some ten microseconds where a request waits for the network.
type Prompt interface {
	// Prompt returns true if the promise is kept.
	Prompt() bool
}

// TakeBacker is implemented by a [Hold] that knows when nothing of its attempt
// is left and nothing can come any more (R7). The engine then asks it, instead
// of Release, to clear up after an unknown outcome, a failed release or a lost
// lease, and asks again until it says so, without a deadline: a session would
// keep alive what is left. When the [Client] is closed the engine asks once
// more, and then closes the Backend if it owns it, which ends the session.
type TakeBacker interface {
	// TakeBack removes what this attempt may have put into the service, whether
	// or not it was granted, and makes what is still under way come to nothing.
	// nil: settled, nothing of this attempt is there and nothing can come any
	// more. An error: ask again.
	TakeBack(ctx context.Context) error
}

// MinHolder is implemented by a [Backend] whose service can keep a lock for
// [Request.MinHold] without its client.
type MinHolder interface {
	// MaxMinHold returns the longest MinHold that can be asked for; 0: none.
	MaxMinHold() time.Duration
}

// TokenRaiser is implemented by a [Hold] whose service can be told of tokens
// that were given out elsewhere, as when a lock moves from one service to
// another.
type TokenRaiser interface {
	// RaiseToken makes every later grant of this hold's name carry a token
	// greater than token. It has an effect only while the hold is held, and
	// returns an error that matches ErrLost if it is not. A token that is lower
	// than those given out already changes nothing.
	RaiseToken(ctx context.Context, token uint64) error
}

// Inspector is implemented by a [Backend] that can say who holds a name.
type Inspector interface {
	// Inspect reports what the service knows of name at this moment.
	Inspect(ctx context.Context, name string) (State, error)
}

// Lister is implemented by a [Backend] that can say which names are held.
type Lister interface {
	// List calls found, one call at a time, for every name that begins with
	// prefix and is held or waited for. Names are as in Request.Name, without
	// the backend's own encoding, and come in no order. A name that changes
	// while List runs may be left out. List stops at the first error of found,
	// and returns it.
	List(ctx context.Context, prefix string, found func(name string, st State) error) error
}

// Breaker is implemented by a [Backend] that can take a lock from its holder.
type Breaker interface {
	// Break removes the holder of name, and returns who it was: a State that is not
	// Held if there was none. The holder finds out as it would if its key were
	// deleted. Those who wait stay in the queue.
	Break(ctx context.Context, name string) (State, error)
}

// Checker is implemented by a [Backend] that can look for settings of its
// service that break what its [Guarantees] declare.
type Checker interface {
	// Check asks the service, changes nothing in it, and returns what it
	// found, good and bad. An error means that the service could not be asked.
	Check(ctx context.Context) ([]Finding, error)
}

// Finding is one thing that a [Checker] looked at.
type Finding struct {
	Severity Severity
	What     string // what was looked at, with the server: "maxmemory-policy of 10.0.0.1:6379"
	Found    string // what it is: "allkeys-lru"
	Advice   string // what follows, and what to change; "" for SeverityOK

	_ struct{}
}

// Severity is how much a [Finding] matters.
type Severity int

// Severities, from the least to the greatest.
const (
	SeverityOK      Severity = iota // as it should be
	SeverityInfo                    // worth knowing
	SeverityWarning                 // a promise may not hold under some fault
	SeverityProblem                 // a declared promise does not hold, or locks cannot be had
)

// String returns the severity in a word.
func (s Severity) String() string {
	return word(int(s), "ok", "info", "warning", "problem")
}

// Aser is implemented by a [Hold] that has something only its service has, for
// [Lease.As].
type Aser interface {
	// As sets what target points to and returns true if the backend knows the
	// type. Each backend documents the types that it knows.
	As(target any) bool
}

// MaxWaiting is how many places State.Waiting looks at.
const MaxWaiting = 16

// State is what a service knows of one name. It is a picture of the past by
// the time it is read: good for people and for tests, never for deciding
// whether to act.
type State struct {
	Held bool
	// Label is the holder's label, "" if it is not known.
	Label string
	// Remaining is how long the lock lasts unless its holder renews it; 0 if
	// it has no deadline or that is not known.
	Remaining time.Duration
	// Token is the holder's fencing token, 0 if there is none or it is not known.
	Token uint64
	// Waiters is how many wait in the service's queue; -1 if it does not know.
	Waiters int
	// Waiting are labels of those who wait, each once, in no order; nil if they are
	// not known. Of many, a service tells the first MaxWaiting places.
	Waiting []string
	// Where says, for people, on which service it is held, if the Backend is a pair
	// of them: "both", or the address of one. "" of every other Backend.
	Where string
}
