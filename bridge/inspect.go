package bridge

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"

	"github.com/golockers/locker"
)

// Inspect implements [locker.Operator]. A name is held if it is held on either service.
// Its holder is the one on the second service, if there is one: whoever holds the first
// one may be waiting for the second. What is held on one of them alone is seen with the
// URL of each: there, labels end with both URLs if their holders have both.
func (b *Backend) Inspect(ctx context.Context, name string) (locker.State, error) {
	var on [2]locker.State
	for i := range b.sides {
		s, err := &b.sides[i], fmt.Errorf("it cannot tell who holds a lock: %w", errors.ErrUnsupported)
		if in, ok := s.Backend.(locker.Operator); ok {
			on[i], err = in.Inspect(ctx, s.prefix+name)
		}
		if err != nil {
			return locker.State{}, s.fail(err)
		}
		if on[i].Token > 0 {
			on[i].Token += s.base
		}
	}
	st, other := on[1], on[0]
	if !st.Held {
		st, other = other, st
	}
	switch {
	case st.Sharers > 0 || other.Held && min(st.Token, other.Token) == 0:
		st.Token = 0 // a lease on both has none
	case other.Held && other.Label == st.Label: // the same lease
		st.Token = max(st.Token, other.Token)
	}
	if min(st.Waiters, other.Waiters) < 0 {
		st.Waiters, other.Waiters = -1, 0
	}
	st.Waiters += other.Waiters
	st.Waiting = append(st.Waiting, other.Waiting...)
	st.Name, st.Holder = name, "of two services"
	st.Label = strings.TrimSuffix(st.Label, b.mark)
	for _, labels := range [][]string{st.Sharing, st.Waiting} {
		for i := range labels {
			labels[i] = strings.TrimSuffix(labels[i], b.mark)
		}
	}
	return st, nil
}

// List returns an error: ask each of the two.
func (b *Backend) List(context.Context, string) iter.Seq2[locker.State, error] {
	return func(yield func(locker.State, error) bool) { yield(locker.State{}, b.askEach("lists no locks")) }
}

// Break returns an error: a lock is broken on each of the two.
func (b *Backend) Break(context.Context, locker.State) error { return b.askEach("breaks no lock") }

func (b *Backend) askEach(what string) error {
	return fmt.Errorf("a bridge %s: use the URLs of its two services, %s and %s, one after the other: %w",
		what, b.sides[0].name, b.sides[1].name, errors.ErrUnsupported)
}
