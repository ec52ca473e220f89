// Package sqlmark is what the guards of package fencing that keep their marks in a table of a SQL
// database do alike: which tokens and marks they take, and how their errors read.
package sqlmark

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/golockers/locker"
	"github.com/golockers/locker/fencing"
)

// Check returns an error if resource is no name, or if the column of a mark cannot hold token.
func Check(resource string, token fencing.Token) error {
	if err := errors.Join(fencing.CheckName(resource), token.Check()); err != nil {
		return err
	}
	if token > math.MaxInt64 {
		return fmt.Errorf("the token %d is more than a signed 64-bit column can hold, which is %d: %w",
			token, int64(math.MaxInt64), locker.ErrInvalid)
	}
	return nil
}

// Error is a failure of a guard: its package, what it did to which resource, and the causes.
type Error struct {
	Guard, Op string
	Resource  string // may be empty
	What      string // put before the first cause; may be empty
	Causes    []error
}

// Error is one line, also if the driver's error has several.
func (e *Error) Error() string {
	s := e.Guard + ": " + e.Op
	if e.Resource != "" {
		s += " " + strconv.Quote(e.Resource)
	}
	return s + ": " + e.What + strings.Join(strings.Fields(e.Causes[0].Error()), " ")
}

// Unwrap returns the causes.
func (e *Error) Unwrap() []error { return e.Causes }

// Failed makes an error of err, whose cause is not the database.
func Failed(guard, op, resource string, err error) error {
	return &Error{Guard: guard, Op: op, Resource: resource, Causes: []error{err}}
}

// Wrap says what failed, and makes the database's error match that of ctx if ctx is over, and otherwise
// [locker.ErrUnavailable] if the database cannot be reached.
func Wrap(ctx context.Context, guard, op, resource string, err error, unreachable bool) error {
	if err == nil {
		return nil
	}
	e := &Error{Guard: guard, Op: op, Resource: resource, Causes: []error{err}}
	switch over := ctx.Err(); {
	case over != nil && !errors.Is(err, over):
		e.What = over.Error() + ": "
		e.Causes = append(e.Causes, over)
	case over == nil && unreachable:
		e.What = "the database cannot be reached, or not now: "
		e.Causes = append(e.Causes, locker.ErrUnavailable)
	}
	return e
}

// Admit is [fencing.Admit] for a mark as the table has it.
func Admit(guard, op, resource string, token fencing.Token, mark int64) error {
	if mark <= 0 {
		return Failed(guard, op, resource, fmt.Errorf(
			"its mark in the table is %d, which is not a token: no guard has written it", mark))
	}
	return fencing.Admit(resource, token, fencing.Token(mark))
}
