// Package raised is what [driver.TokenRaiser] needs on a service that numbers
// its holders by itself: how much is to be added to those numbers, kept beside
// the name. It does not talk to the service.
package raised

import (
	"fmt"
	"math"

	"github.com/golockers/locker/driver"
)

// Tokens is what is added to the numbers of one name. The zero value adds nothing.
type Tokens struct {
	// By is the number of the holder that raised the tokens last.
	By int64
	// Before is added to its own number, and Add to all later ones.
	Before, Add uint64
}

// maxToken is up to where tokens can be raised: as much again is left for the
// service's own numbers, and no sum overflows.
const maxToken = math.MaxInt64 / 2

const format = "1 %d %d %d" // begins with its version

// Parse reads what String has written.
func Parse(text string) (t Tokens, err error) {
	_, err = fmt.Sscanf(text, format, &t.By, &t.Before, &t.Add)
	if err != nil || t.Add > maxToken || t.Before > t.Add || t.String() != text {
		return Tokens{}, fmt.Errorf("what is kept of raised tokens is not readable (%.64q): %w",
			text, driver.ErrRefused)
	}
	return t, nil
}

// String is what is kept in the service.
func (t Tokens) String() string { return fmt.Sprintf(format, t.By, t.Before, t.Add) }

// Of returns the token of the holder with that number, who is the one that
// raised the tokens last, or a later one.
func (t Tokens) Of(number int64) uint64 {
	if number > t.By {
		return uint64(number) + t.Add
	}
	return uint64(number) + t.Before
}

// Raise returns what makes the tokens of all numbers after number, which is the
// present holder's, greater than token. It never adds less than before.
func (t Tokens) Raise(number int64, token uint64) (Tokens, error) {
	if token > maxToken {
		return t, fmt.Errorf("%w: the token %d is above %d, up to where tokens can be raised",
			driver.ErrInvalid, token, uint64(maxToken))
	}
	if token <= uint64(number)+t.Add {
		return t, nil
	}
	if t.By != number {
		t.By, t.Before = number, t.Add
	}
	t.Add = token - uint64(number)
	return t, nil
}
