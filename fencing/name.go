package fencing

import (
	"fmt"
	"unicode/utf8"

	"github.com/golockers/locker"
)

// MaxNameLen is the greatest length of a resource's name, in bytes of UTF-8: that of a lock's name with
// its Client's prefix.
const MaxNameLen = locker.MaxNameLen + locker.MaxPrefixLen

// CheckName returns an error that matches [locker.ErrInvalid] if name is not 1 to
// [MaxNameLen] bytes of valid UTF-8. It is for authors of guards.
func CheckName(name string) error {
	switch {
	case name == "":
		return fmt.Errorf("%w: the name of the resource is empty: give 1 to %d bytes of UTF-8",
			locker.ErrInvalid, MaxNameLen)
	case len(name) > MaxNameLen:
		return fmt.Errorf("%w: the name of the resource, %.40q…, has %d bytes: the limit is %d",
			locker.ErrInvalid, name, len(name), MaxNameLen)
	case !utf8.ValidString(name):
		return fmt.Errorf("%w: the name of the resource, %.40q, is not valid UTF-8", locker.ErrInvalid, name)
	}
	return nil
}

// Check returns the error of [CheckName] if resource is not a valid name, or an error that matches
// [ErrMissing] if token is 0. It is for authors of guards, to be called before anything is sent.
func Check(resource string, token Token) error {
	if err := CheckName(resource); err != nil {
		return fmt.Errorf("fencing: %w", err)
	}
	return Admit(resource, token, 0)
}
