package driver

import (
	"context"
	"iter"
)

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

// Queue is implemented by a [Backend] whose service keeps a queue, in which Acquire waits as
// Request.Wait says. The engine then lets the next caller in its own line ask while a release
// is still in flight, since its request comes after the release.
type Queue interface {
	// Queue returns true if there is a queue.
	Queue() bool
}

// HasQueue reports whether b has the ability [Queue], and says so.
func HasQueue(b Backend) bool {
	q, ok := b.(Queue)
	return ok && q.Queue()
}

// Passer is implemented by a [Hold] that can be given up, and the lock be acquired
// by the next caller in line of the same client, in one request. It makes a line
// quick whose callers hold the lock briefly; the lease is not handed on.
type Passer interface {
	// Pass is the hold's Release and then Acquire with next, in one step that nobody
	// comes between. It does not wait. With yield, if other clients wait, it is one of
	// theirs who is next.
	//
	// When the hold was there and was given up, the error is nil, and the Grant has a Hold if next
	// has the lock. Otherwise the Grant may be Refused: the engine calls the Refusal's Undo, if it
	// has one. An error that matches ErrLost: the hold was not there, and next has nothing. Any other error: neither is known, and the engine
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

// Aser is implemented by a [Hold] that has values which only its service has, for
// [Lease.As].
type Aser interface {
	// As sets the value that target points to and returns true, if the backend knows
	// its type. Each backend documents the types that it knows.
	As(target any) bool
}

// Lease is what a backend's function needs of a lease that it is given, such as a function that
// lets a write happen only while the lock is held. *locker.Lease is one. As finds what the
// backend's [Aser] gives.
type Lease interface {
	Name() string
	Err() error // nil while the lease lasts
	As(target any) bool
}
