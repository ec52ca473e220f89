package bridge

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/golockers/locker"
)

// Inspect each service by itself: there, labels of holders with both URLs end with both URLs.

// Inspect returns an error: ask each of the two.
func (b *Backend) Inspect(context.Context, string) (locker.State, error) {
	return locker.State{}, b.askEach("cannot inspect locks")
}

// List returns an error: ask each of the two.
func (b *Backend) List(context.Context, string) iter.Seq2[locker.State, error] {
	return func(yield func(locker.State, error) bool) { yield(locker.State{}, b.askEach("cannot list locks")) }
}

// Break returns an error: break the lock on each of the two.
func (b *Backend) Break(context.Context, locker.State) error { return b.askEach("cannot break locks") }

// Check returns an error: check each of the two.
func (b *Backend) Check(context.Context) ([]locker.Finding, error) {
	return nil, b.askEach("cannot be checked")
}

func (b *Backend) askEach(what string) error {
	return fmt.Errorf("a bridge %s: use the URLs of its two services, %s and %s, one after the other: %w",
		what, b.sides[0].name, b.sides[1].name, errors.ErrUnsupported)
}
