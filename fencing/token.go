package fencing

import (
	"fmt"
	"strconv"

	"github.com/golockers/locker"
)

// Token is a fencing token: the number of one hold of one lock, greater than the
// token of every earlier hold of the same lock. Tokens of different locks say nothing
// about each other. 0 is no token: all functions that take a Token refuse it with
// [ErrMissing].
//
// The text of a Token is the number in decimal digits, for a message, a queue or an environment
// variable (locker run sets LOCKER_TOKEN). In JSON it is a string, because many JSON parsers round
// numbers above 2⁵³.
type Token uint64

// Of returns the token of a lease, or an error that matches [ErrMissing] if it has none; [WithTokens]
// finds that when the program starts.
func Of(lease *locker.Lease) (Token, error) {
	n, ok := lease.Token()
	if !ok {
		return 0, fmt.Errorf("%w: the lease on %q has none: its backend has none, or not with these settings",
			ErrMissing, lease.Name())
	}
	return Token(n), nil
}

// Parse reads a token from its text: 1 to 20 decimal digits, no sign, no space, no leading zero. The
// error matches [ErrMissing] if text is empty or "0", and [locker.ErrInvalid] if it is not a token.
func Parse(text string) (Token, error) {
	if text == "" || text == "0" {
		return 0, fmt.Errorf("%w: the text is %q", ErrMissing, text)
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil || text[0] == '0' {
		return 0, fmt.Errorf("fencing: %.40q is not a token: want a number from 1 to %d in decimal "+
			"digits: %w", text, uint64(1<<64-1), locker.ErrInvalid)
	}
	return Token(n), nil
}

// String returns the number in decimal digits.
func (t Token) String() string { return strconv.FormatUint(uint64(t), 10) }

// MarshalText returns the text of t, or an error that matches [ErrMissing].
func (t Token) MarshalText() ([]byte, error) {
	if t == 0 {
		return nil, ErrMissing
	}
	return strconv.AppendUint(nil, uint64(t), 10), nil
}

// UnmarshalText parses text with [Parse].
func (t *Token) UnmarshalText(text []byte) error {
	parsed, err := Parse(string(text))
	if err != nil {
		return err
	}
	*t = parsed
	return nil
}
