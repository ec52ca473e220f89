package locker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"time"

	"github.com/golockers/locker/internal/clock"
)

// Backend is a lock service as the engine sees it. It is for implementers: programs
// that want a lock call [New] and use the [Client], which does what is the same for every
// service: it waits in line, polls, renews, ends leases in time, and takes back what requests
// with an unknown outcome may have left.
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
	//   - a *HeldError (or ErrHeld), if another holder has the lock: at once, unless req.Wait
	//     says that it waits;
	//   - an error that matches ErrUnavailable, if the service cannot be asked;
	//   - another error, if the service refuses the client (wrong credentials, no permission),
	//     and trying again does not help;
	//   - the error together with a Grant whose Hold is set, if the outcome is not known: the
	//     reply was lost, ctx ended with the request in flight, or one of several copies of it
	//     may have been granted. The engine then calls Undo of the Hold.
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
	// ([Lease.GiveBack]) is released at once. So Release, Undo and Pass remove the lock whatever its MinHold.
	MinHold time.Duration

	// Wait: the caller waits. A service with a queue of its own ([Guarantees].Queue) then
	// waits in it until ctx is done, and leaves it; its error matches ErrHeld beside
	// ctx.Err() if it knew that the lock was held. Without a queue it refuses the request,
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
	// asks again, by the note of a [HeldError]. A run of sharers at the head of a queue
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

// Grant is a lock that was granted, or, beside an error, one that may have been.
type Grant struct {
	Hold     Hold
	Validity Validity
	// Token is the fencing token, at most MaxToken; 0 where the backend has none.
	Token uint64
	// Session: something keeps the hold beyond its TTL, until it is removed: a session of the
	// backend, which may outlive the Client.
	Session bool
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

// check refuses values with which a lease would last longer than the service keeps
// it.
func (v Validity) check() error {
	switch {
	case v.TTL < 0 || v.Drift < 0:
		return fmt.Errorf("a TTL of %v with a Drift of %v was granted: neither may be negative", v.TTL, v.Drift)
	case v.TTL > 0 && v.Since.IsZero():
		return fmt.Errorf("a TTL of %v was granted without Since, from which it counts", v.TTL)
	}
	return nil
}

// check refuses a grant that makes no lease.
func (g Grant) check() error {
	if g.Token > MaxToken {
		return fmt.Errorf("token %d was granted: the highest is %d", g.Token, uint64(MaxToken))
	}
	return g.Validity.check()
}

// Until returns the time until which the holder may act, with the monotonic reading
// of Since: Since + TTL - Drift, or a hundred years after Since if the hold has no
// deadline.
func (v Validity) Until() time.Time {
	if v.TTL == 0 {
		return v.Since.Add(clock.Century)
	}
	return v.Since.Add(v.TTL - cmp.Or(v.Drift, drift(v.TTL)))
}

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

// Undo makes [Hold.Undo] of Release, for a service that ends holds by itself when their
// TTL has passed. Its zero value is that of an attempt that has sent nothing. A Hold
// has one, and tells it of every request that may store or prolong the hold.
type Undo struct {
	mu      sync.Mutex
	sending int
	late    bool          // a request that stores the hold may be under way
	lasts   time.Duration // the longest that was asked for
	until   time.Time     // it has ended by then
}

// Sends notes, before a request is sent, for how long it asks the service to keep the hold.
func (u *Undo) Sends(d time.Duration) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.sending++
	u.lasts = max(u.lasts, d)
}

// Sent notes that the request of the last Sends, with all its copies, is not sent any more.
// late: one of them may still arrive, and store the hold.
func (u *Undo) Sent(late bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.sending--
	u.late = u.late || late
	u.until = time.Now().Add(u.lasts + drift(u.lasts))
}

// Undo is [Hold.Undo] if release is [Hold.Release].
func (u *Undo) Undo(ctx context.Context, release func(context.Context) error) error {
	u.mu.Lock()
	quiet := u.sending == 0 // what arrives during the release may come after it
	u.mu.Unlock()
	err := release(ctx)
	u.mu.Lock()
	defer u.mu.Unlock()
	nothing := err == nil || errors.Is(err, ErrLost)
	switch {
	case u.sending == 0 && (quiet && nothing && !u.late || !time.Now().Before(u.until)):
		return nil
	case err == nil:
		return fmt.Errorf("a request of it may still arrive: %w", ErrLost)
	}
	return err
}

// The following interfaces are optional abilities of a [Backend] or a [Hold]. The
// engine finds them by type assertion, so a Backend that wraps another one has to
// implement them too.

// Notifier is implemented by a [Backend] without a queue that can report when a name
// may have become free. It makes waiting prompt; neither correctness nor progress
// rests on it.
type Notifier interface {
	// Notify arranges for wake to be called whenever name may be free, until stop is
	// called. It returns when the service has confirmed this. The engine then calls
	// Acquire once more, with Wait set. If that Acquire is refused, the backend must
	// report the release of the lock that was in the way, and its removal by Break; if the
	// lock was passed on since, the release of what Pass has granted. Other releases need not
	// be reported. wake does not block. The backend also calls wake when it may have
	// missed a message, and may call it when nothing has happened. stop does not wait
	// for the service.
	Notify(ctx context.Context, name string, wake func()) (stop func(), err error)
}

// Passer is implemented by a [Hold] that can be given up, and the lock be acquired
// by the next caller in line of the same [Client], in one request. It makes a line
// quick whose callers hold the lock briefly; the lease is not handed on.
type Passer interface {
	// Pass is the hold's Release and then Acquire with next, in one step that nobody
	// comes between. It does not wait. With yield, if other clients wait, it is one of
	// theirs who is next.
	//
	// When the hold was there and was given up, the error is nil; the Grant has a
	// Hold if next has the lock. An error that matches ErrLost: the hold was not
	// there, and next has nothing. Any other error: neither is known, and the engine
	// releases the one again and takes the other back, as after Acquire: the Grant
	// has its Hold, or none if nothing can be left of next. It returns in time as
	// [Prompt] says.
	Pass(ctx context.Context, next Request, yield bool) (Grant, error)
}

// Prompt is implemented by a [Backend] that returns promptly by itself: Acquire, and
// Renew and Release of its holds, return within 100 ms after their context ended,
// whatever the network does. The engine then calls Acquire and Release in the
// goroutine of its own caller. It calls other backends from goroutines of its own,
// which costs some ten microseconds, and does not wait for those that are late.
type Prompt interface {
	// Prompt returns true if the Backend keeps this promise.
	Prompt() bool
}

// TokenRaiser is implemented by a [Hold] whose service can continue above tokens that
// another service has given out, as when a lock moves from one service to another.
type TokenRaiser interface {
	// RaiseToken gives every later grant of this hold's name a token greater than
	// token. It works only while the hold is held; otherwise its error matches
	// ErrLost, or ErrInvalid if the service cannot count so far. The engine does not call it
	// for a sharer. If the service has already given out a higher token, nothing changes.
	RaiseToken(ctx context.Context, token uint64) error
}

// Operator is implemented by a [Backend] that can answer what people ask. What it cannot do
// ends with an error that matches [errors.ErrUnsupported] and says what to do instead. Names
// are as in Request.Name.
type Operator interface {
	// Inspect returns the state of name at this moment, held or not.
	Inspect(ctx context.Context, name string) (State, error)

	// List yields the State of every name that begins with prefix and is held or waited
	// for, in no order. A name that changes while List runs may be left out. An error is
	// the last that it yields.
	List(ctx context.Context, prefix string) iter.Seq2[State, error]

	// Break removes the holder st.Holder of st.Name, of sharers all. If another has the name
	// by then, or nobody, it removes nobody: a request that is sent twice, or late, finds
	// nobody. The holder learns of it as if its key had been deleted. Waiters stay in the
	// queue. nil: that holder does not have the name any more. If it cannot be removed, as
	// one that lives on a service of the kernel, nothing changes, and the error matches
	// [errors.ErrUnsupported]. The engine does not hand on a State that is not Held.
	Break(ctx context.Context, st State) error
}

// Checker is implemented by a [Backend] that can look for settings of its
// service that break what its [Guarantees] declare.
type Checker interface {
	// Check asks the service, changes nothing in it, and returns its findings, good
	// and bad. An error means that the service could not be asked.
	Check(ctx context.Context) ([]Finding, error)
}

// Finding is one setting or state that a [Checker] looked at.
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
func (s Severity) String() string { return word(int(s), "ok", "info", "warning", "problem") }

// Aser is implemented by a [Hold] that has values which only its service has, for
// [Lease.As].
type Aser interface {
	// As sets the value that target points to and returns true, if the backend knows
	// its type. Each backend documents the types that it knows.
	As(target any) bool
}

// State is the state of one name, as far as the service knows it. It may be out of
// date when it arrives.
type State struct {
	Name string
	// Held: somebody holds the name. One that is only kept for a client that has yet to come
	// for it is not held.
	Held bool
	// Holder is who holds the name, for Break: the attempt, or of sharers all that have held
	// it together without a pause. It has a meaning only for the backend that gave it; "" if
	// nobody holds the name, or the backend cannot tell one holder from another.
	Holder string
	// Label is the holder's label, or that of one of the sharers; "" if it is not known.
	Label string
	// Sharers is how many hold the name together; 0 if one holds it alone, or nobody.
	Sharers int
	// Sharing has the labels of the sharers, each once, in no order, of 16 of them at
	// most; nil if they are not known.
	Sharing []string
	// Remaining is how long the lock lasts, also by a MinHold, unless its holder renews it,
	// and the longest such time of its sharers; 0 if it has no deadline or that is not known.
	Remaining time.Duration
	// Token is the holder's fencing token, 0 if there is none or it is not known.
	Token uint64
	// Waiters is how many wait in the service's queue; -1 if it does not know.
	Waiters int
	// Waiting has the labels of the waiters, each once, in no order; nil if they are
	// not known. It covers at most the first 16 places of the queue.
	Waiting []string
}
