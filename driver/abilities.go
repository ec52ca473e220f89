package driver

import (
	"context"
	"iter"
)

// The following interfaces are optional abilities of a [Backend] or a [Hold]. The engine finds them by
// type assertion, so a Backend that wraps another one must implement them too.

// Notifier is implemented by a [Backend] without a queue that can report when a name may have become
// free. It makes waiting prompt; neither correctness nor progress depends on it.
type Notifier interface {
	// Notify arranges for wake to be called whenever name may be free, until stop is called. It returns
	// when the service has confirmed this. The engine then calls Acquire once more, with Wait set. If
	// that Acquire is refused, the backend must call wake when the lock that was in the way is released
	// or removed by Break or, if Pass has since passed it on, when the lock that Pass granted is
	// released. Other releases need not be reported. wake does not block. The backend also calls wake
	// when it may have missed a message, and may call it without a cause. stop does not wait for the
	// service.
	Notify(ctx context.Context, name string, wake func()) (stop func(), err error)
}

// Queue is implemented by a [Backend] whose service keeps a queue, in which Acquire waits as
// Request.Wait says. The engine then lets the next caller in its own line ask while a release is still
// in flight, because that request reaches the queue after the release.
type Queue interface {
	// Queue returns true if there is a queue.
	Queue() bool
}

// HasQueue reports whether b implements [Queue] and its Queue returns true.
func HasQueue(b Backend) bool {
	q, ok := b.(Queue)
	return ok && q.Queue()
}

// Passer is implemented by a [Hold] that can be released and the lock acquired for the next caller in
// line of the same client in one request. It makes a line of short holds fast; the lease itself is not
// handed on.
type Passer interface {
	// Pass is the hold's Release and then Acquire with next, in one atomic step. It does not wait. With
	// yield, a waiter of another client, if there is one, is next. The engine passes no hold on that it
	// is to keep, and keeps none after a Pass: a late one would end that.
	//
	// If the hold was there and was released, the error is nil, and the Grant has a Hold if next has
	// the lock. Otherwise the Grant may be Refused: the engine calls the Refusal's Undo, if it has one.
	// If the error matches ErrLost, the hold was not there, and next has nothing. After any other error
	// neither outcome is known, and the engine releases the hold again and takes back next's attempt,
	// as after Acquire: the Grant has its Hold, or none if nothing of next can be left. Pass returns in
	// time as [Prompt] says.
	Pass(ctx context.Context, next Request, yield bool) (Grant, error)
}

// Prompt is implemented by a [Backend] that returns promptly by itself: Acquire, and Renew and Release
// of its holds, return within 100 ms after their context ends, whatever the network does. The engine
// then calls Acquire and Release in its caller's goroutine. It calls other backends from goroutines of
// its own, which costs some ten microseconds, and does not wait for late ones.
type Prompt interface {
	// Prompt returns true if the Backend keeps this promise.
	Prompt() bool
}

// TokenRaiser is implemented by a [Hold] whose service can continue above tokens that another service
// has granted, as when a lock moves from one service to another.
type TokenRaiser interface {
	// RaiseToken gives every later grant of this hold's name a token greater than token. It works only
	// while the hold is held; otherwise its error matches ErrLost. If the service cannot count that
	// far, it matches ErrInvalid. The engine does not call it for a sharer. If the service has already
	// granted a higher token, nothing changes.
	RaiseToken(ctx context.Context, token uint64) error
}

// Operator is implemented by a [Backend] that can serve requests made by people. What it cannot do ends
// with an error that matches [errors.ErrUnsupported] and says what to do instead. Names are as in
// Request.Name.
type Operator interface {
	// Inspect returns the state of name at this moment, held or not.
	Inspect(ctx context.Context, name string) (State, error)

	// List yields the State of every name that begins with prefix and is held or waited for, in no
	// particular order. A name that changes while List runs may be left out. An error is yielded last.
	List(ctx context.Context, prefix string) iter.Seq2[State, error]

	// Break removes the holder st.Holder of st.Name; if sharers hold it, all of them. If by then
	// another holder has the name, or nobody has, it removes nobody; so a repeated or late request
	// finds nobody. The holder learns of it as if its key had been deleted. Waiters stay in the queue.
	// nil means that this holder no longer has the name. If it cannot be removed, as where the kernel
	// keeps the lock, nothing changes, and the error matches [errors.ErrUnsupported]. The engine never
	// passes a State that is not Held.
	Break(ctx context.Context, st State) error
}

// Checker is implemented by a [Backend] that can look for settings of its service that break its
// [Guarantees].
type Checker interface {
	// Check examines the service without changing it, and returns its findings, good and bad. An error
	// means that the service could not be asked.
	Check(ctx context.Context) ([]Finding, error)
}

// Aser is implemented by a [Hold] with values specific to its service, for [Lease.As].
type Aser interface {
	// If the backend knows the type that target points to, As sets that value and returns true. Each
	// backend documents the types that it knows.
	As(target any) bool
}

// Lease is what a backend's function needs of a lease that it is given, as a function that allows a
// write only while the lock is held. *locker.Lease is one. As finds what the backend's [Aser] provides.
type Lease interface {
	Name() string
	Err() error // nil while the lease lasts
	As(target any) bool
}
