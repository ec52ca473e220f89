// Package localfile is what the packages that lock files of this host have in
// common: flock(2) on an [os.File], the flags to open such a file with, and the
// question whether a directory is on a file system of this host alone. What a
// lock means, how long to wait for it and what to tell the user is theirs.
//
// It works on Linux, macOS and FreeBSD. Elsewhere it can be imported, and what it
// is asked for is refused with [errors.ErrUnsupported]. Each package that uses it
// says itself on which of these systems it works.
package localfile

import (
	"errors"
	"os"
)

// ErrBusy is what [Flock] returns, as it is, if it was told not to wait and
// others have locks on the file that are in the way.
var ErrBusy = errors.New("locked by another")

// LetGo unlocks f and closes it. Closing alone would not do while a process
// that this one is starting has a copy of the descriptor. An error is of no use
// to the caller, and not returned: the lock ends with the last descriptor.
func LetGo(f *os.File) {
	_ = Flock(f, Unlock)
	_ = f.Close()
}
