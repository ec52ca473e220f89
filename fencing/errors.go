package fencing

import (
	"errors"
	"fmt"
)

var (
	// ErrStale is why a guard refuses a token: the resource has seen a higher
	// one. The holder that gave it has lost its lock, whatever it believes,
	// and has to stop; trying again cannot help. The error is a [*StaleError].
	ErrStale = errors.New("stale fencing token")

	// ErrMissing is returned where a fencing token has to be and none is. A
	// missing token is never taken for a low one, or for permission.
	ErrMissing = errors.New("no fencing token")

	// ErrUnknown is returned by guards that ask a server, when a write was sent
	// and no answer came: either the mark has moved and everything was written,
	// or nothing was, or it will be yet. A late write is guarded still: it never
	// happens after one of a higher token. Repeating the call with the same token is
	// safe for the mark; whether it is for what is written depends on that, and
	// the guards' packages say more.
	ErrUnknown = errors.New("whether it was written is not known")
)

// StaleError is a refusal, with both numbers. It matches [ErrStale].
type StaleError struct {
	Resource string // the name of the mark, as the guard was given it
	Token    Token  // what was given
	Mark     Token  // the highest that the resource has seen
}

// Error says what was refused and why, on one line.
func (e *StaleError) Error() string {
	s := fmt.Sprintf("fencing: %v %d for %q: it has seen %d, so a later holder was here", ErrStale, e.Token, e.Resource, e.Mark)
	if e.rewound() {
		s += fmt.Sprintf("; or, as the numbers are so far apart, these are tokens of another lock service or of one whose data was set back:"+
			" then every token is refused until token_base is above all that were given out, %d at least", e.Mark)
	}
	return s
}

// Is makes a StaleError match [ErrStale].
func (e *StaleError) Is(target error) bool { return target == ErrStale }

// rewound guesses, for people only, from how far the numbers are apart: those
// of one service and one lock are seldom a thousand times each other.
func (e *StaleError) rewound() bool { return e.Token < e.Mark/1000 }

// Admit decides what every guard decides: it returns nil if token may pass a
// mark, a [*StaleError] if it is lower, and an error that matches
// [ErrMissing] if it is no token. A token equal to the mark passes: the same
// holder goes on. mark 0: the resource has seen none.
//
// It is for whoever writes a guard, who has to see to it that nothing comes
// between this comparison, the move of the mark and the write.
func Admit(resource string, token, mark Token) error {
	if err := token.Check(); err != nil {
		return fmt.Errorf("fencing: %q: %w", resource, err)
	}
	if token < mark {
		return &StaleError{Resource: resource, Token: token, Mark: mark}
	}
	return nil
}
