package bridge

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/golockers/locker"
)

// What people ask is asked of each service: labels there end with both URLs if their holders have both.

// Inspect returns an error: ask each of the two.
func (b *Backend) Inspect(context.Context, string) (locker.State, error) {
	return locker.State{}, b.askEach("tells of no lock")
}

// List returns an error: ask each of the two.
func (b *Backend) List(context.Context, string) iter.Seq2[locker.State, error] {
	return func(yield func(locker.State, error) bool) { yield(locker.State{}, b.askEach("lists no locks")) }
}

// Break returns an error: a lock is broken on each of the two.
func (b *Backend) Break(context.Context, locker.State) error { return b.askEach("breaks no lock") }

// Check returns an error: check each of the two.
func (b *Backend) Check(context.Context) ([]locker.Finding, error) {
	return nil, b.askEach("has nothing to check")
}

func (b *Backend) askEach(what string) error {
	return fmt.Errorf("a bridge %s: use the URLs of its two services, %s and %s, one after the other: %w",
		what, b.sides[0].name, b.sides[1].name, errors.ErrUnsupported)
}
