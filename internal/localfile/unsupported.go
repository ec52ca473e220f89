//go:build !linux && !darwin && !freebsd

package localfile

import (
	"errors"
	"os"
)

// OpenFlags are none here.
const OpenFlags = 0

// How says what [Flock] does.
type How int

// Exclusive, Shared, Unlock and NoWait have no meaning here.
const (
	Exclusive How = 1 << iota
	Shared
	Unlock
	NoWait
)

// Flock returns [errors.ErrUnsupported].
func Flock(*os.File, How) error { return errors.ErrUnsupported }

// RemoteKind returns [errors.ErrUnsupported].
func RemoteKind(string) (kind string, err error) { return "", errors.ErrUnsupported }
