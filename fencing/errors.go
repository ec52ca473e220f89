package fencing

import (
	"errors"
	"fmt"
)

var (
	// ErrStale says that a guard refused a token because the resource has seen a higher one. The holder
	// has lost its lock, even if it has not noticed, and must stop; trying again cannot help. The error
	// is a [*StaleError].
	ErrStale = errors.New("stale fencing token")

	// ErrMissing says that a fencing token is required and there is none. A missing token counts
	// neither as a low one nor as permission.
	ErrMissing = errors.New("no fencing token")

	// ErrUnknown says that a write was sent to a server and no answer came. Either everything was
	// written and the mark has moved, or nothing was written, or it will be written later. Even a late
	// write is guarded: it never happens after a write with a higher token. Repeating the call with the
	// same token is safe for the mark; whether it is safe for the data depends on the write, as the
	// guards' packages explain.
	ErrUnknown = errors.New("unknown whether it was written")
)

// StaleError is a refusal, with both tokens. It matches [ErrStale].
type StaleError struct {
	Resource string // the name of the resource, as the caller gave it
	Token    Token  // the token that was refused
	Mark     Token  // the highest token that the resource has seen
}

// Error says what was refused and why, on one line.
func (e *StaleError) Error() string {
	s := fmt.Sprintf("fencing: %v %d for %q: it has seen %d, so a later holder was here",
		ErrStale, e.Token, e.Resource, e.Mark)
	if e.rewound() {
		s += fmt.Sprintf("; or, because the numbers differ so much, these are tokens of another lock service "+
			"or of one whose data was set back:"+
			" then every token is refused until token_base is above all granted so far, %d at least", e.Mark)
	}
	return s
}

// Is makes a StaleError match [ErrStale].
func (e *StaleError) Is(target error) bool { return target == ErrStale }

// rewound guesses, only for error texts, whether tokens were set back: tokens of one lock in one
// service seldom differ by a factor of a thousand.
func (e *StaleError) rewound() bool { return e.Token < e.Mark/1000 }

// Admit is the comparison that every guard makes. It returns nil if token may pass mark, a
// [*StaleError] if token is lower, and an error that matches [ErrMissing] if there is no token. A token
// equal to the mark passes, because it is the same holder. mark is 0 if the resource has seen no token.
//
// Admit is for authors of guards. A guard must make sure that nothing comes between this comparison,
// the move of the mark and the write.
func Admit(resource string, token, mark Token) error {
	switch {
	case token == 0:
		return fmt.Errorf("fencing: %q: %w", resource, ErrMissing)
	case token < mark:
		return &StaleError{Resource: resource, Token: token, Mark: mark}
	}
	return nil
}
