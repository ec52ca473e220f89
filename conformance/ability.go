package conformance

import (
	"context"

	"github.com/golockers/locker"
)

// What the kit asks of a backend's abilities, in one form for all of them.

type (
	promises = locker.Guarantees
	stateOf  = locker.State
)

func promisesOf(b locker.Backend) promises { return b.Guarantees() }

// undoOf returns what takes back all that the attempt of a hold may have left.
func undoOf(h locker.Hold) func(context.Context) error { return h.Undo }

// operatorOf returns the operator of a backend that is one.
func operatorOf(b locker.Backend) (o locker.Operator, ok bool) {
	o, ok = b.(locker.Operator)
	return o, ok
}
