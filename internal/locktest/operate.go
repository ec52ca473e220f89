package locktest

import (
	"context"
	"iter"

	"github.com/golockers/locker"
)

// Operator is a locker.Client or a driver.Operator.
type Operator interface {
	Inspect(ctx context.Context, name string) (locker.State, error)
	List(ctx context.Context, prefix string) iter.Seq2[locker.State, error]
	Break(ctx context.Context, st locker.State) error
}

// Break breaks the lock of whoever holds name, and returns the State before.
func Break(ctx context.Context, o Operator, name string) (locker.State, error) {
	st, err := o.Inspect(ctx, name)
	if err == nil && st.Held {
		err = o.Break(ctx, st)
	}
	return st, err
}

// List returns what List yields.
func List(ctx context.Context, o Operator, prefix string) (all []locker.State, err error) {
	for st, err := range o.List(ctx, prefix) {
		if err != nil {
			return all, err
		}
		all = append(all, st)
	}
	return all, nil
}

// Lists lists everything.
func Lists(ctx context.Context, o Operator) error {
	_, err := List(ctx, o, "")
	return err
}
