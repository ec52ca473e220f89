package conformance

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/golockers/locker"
)

// What the kit asks of a backend's abilities, in one form for all of them.

// promises are the Guarantees, and what else a backend declares.
type promises struct {
	locker.Guarantees
	Queue      bool
	MaxMinHold time.Duration
}

func promisesOf(b locker.Backend) promises {
	p := promises{Guarantees: b.Guarantees()}
	if q, ok := b.(locker.Queuer); ok {
		p.Queue = q.HasQueue()
	}
	if m, ok := b.(locker.MinHolder); ok {
		p.MaxMinHold = m.MaxMinHold()
	}
	return p
}

// stateOf is a State with the name that it is of, and with a mark of the holder.
type stateOf struct {
	locker.State
	Name, Holder string
}

// undoOf returns what takes back all that the attempt of a hold may have left.
func undoOf(h locker.Hold) func(context.Context) error {
	if t, ok := h.(locker.TakeBacker); ok {
		return t.TakeBack
	}
	return func(ctx context.Context) error {
		err := h.Release(ctx)
		if errors.Is(err, locker.ErrLost) {
			return errors.New("its request may still arrive")
		}
		return err
	}
}

// operator asks what people ask.
type operator struct {
	locker.Inspector
	locker.Lister
	locker.Breaker
}

// operatorOf returns the operator of a backend that is one.
func operatorOf(b locker.Backend) (o operator, ok bool) {
	i, inspects := b.(locker.Inspector)
	l, lists := b.(locker.Lister)
	k, breaks := b.(locker.Breaker)
	return operator{i, l, k}, inspects && lists && breaks
}

func (o operator) Inspect(ctx context.Context, name string) (stateOf, error) {
	st, err := o.Inspector.Inspect(ctx, name)
	return stateOf{st, name, "one"}, err
}

// Break removes the holder that st tells of.
func (o operator) Break(ctx context.Context, st stateOf) error {
	now, err := o.Inspect(ctx, st.Name)
	if err != nil || !st.Held || now.Token != st.Token {
		return err
	}
	_, err = o.Breaker.Break(ctx, st.Name)
	return err
}

var errStop = errors.New("enough")

func (o operator) List(ctx context.Context, prefix string) iter.Seq2[stateOf, error] {
	return func(yield func(stateOf, error) bool) {
		err := o.Lister.List(ctx, prefix, func(name string, st locker.State) error {
			if !yield(stateOf{st, name, "one"}, nil) {
				return errStop
			}
			return nil
		})
		if err != nil && !errors.Is(err, errStop) {
			yield(stateOf{}, err)
		}
	}
}
