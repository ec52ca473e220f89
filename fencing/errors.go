package fencing

import (
	"errors"
	"fmt"
)

var (
	// ErrStale says that a guard refused a token, since the resource has seen a
	// higher one. The holder has lost its lock, whatever it believes, and has to
	// stop; trying again cannot help. The error is a [*StaleError].
	ErrStale = errors.New("stale fencing token")

	// ErrMissing says that a fencing token is needed and there is none. A missing
	// token never counts as a low one, nor as permission.
	ErrMissing = errors.New("no fencing token")

	// ErrUnknown says that a write was sent to a server and no answer came. Either
	// everything was written and the mark has moved, or nothing was written, or it
	// will be written later. Even then it is guarded: it never happens after a write
	// with a higher token. It is safe for the mark to repeat the call with the same
	// token; whether it is safe for the data depends on the write, and the guards'
	// packages say more.
	ErrUnknown = errors.New("whether it was written is not known")
)

// StaleError is a refusal, with both tokens. It matches [ErrStale].
type StaleError struct {
	Resource string // the name of the resource, as the caller gave it
	Token    Token  // the token that was refused
	Mark     Token  // the highest that the resource has seen
}

// Error says what was refused and why, on one line.
func (e *StaleError) Error() string {
	s := fmt.Sprintf("fencing: %v %d for %q: it has seen %d, so a later holder was here",
		ErrStale, e.Token, e.Resource, e.Mark)
	if e.rewound() {
		s += fmt.Sprintf("; or, as the numbers are so far apart, these are tokens of another lock service "+
			"or of one whose data was set back:"+
			" then every token is refused until token_base is above all that were given out, %d at least", e.Mark)
	}
	return s
}

// Is makes a StaleError match [ErrStale].
func (e *StaleError) Is(target error) bool { return target == ErrStale }

// rewound guesses, for the text of errors only, whether tokens were set back: tokens
// of one lock in one service seldom differ by a factor of a thousand.
func (e *StaleError) rewound() bool { return e.Token < e.Mark/1000 }

// Admit is the comparison that every guard makes. It returns nil if token may pass
// mark, a [*StaleError] if token is lower, and an error that matches [ErrMissing] if
// there is no token. A token equal to the mark passes: the same holder goes on. mark
// is 0 if the resource has seen no token.
//
// Admit is for authors of guards. A guard has to make sure that nothing comes between
// this comparison, the move of the mark and the write.
func Admit(resource string, token, mark Token) error {
	switch {
	case token == 0:
		return fmt.Errorf("fencing: %q: %w", resource, ErrMissing)
	case token < mark:
		return &StaleError{Resource: resource, Token: token, Mark: mark}
	}
	return nil
}
