// Package localfile is what the packages that lock files of this host have in
// common: flock(2) on an [os.File], the flags to open such a file with, and what else
// they ask the system. The meaning of a lock, the wait for it and the errors for the
// user are theirs.
//
// It works on Linux, macOS and FreeBSD. Elsewhere it can be imported, and its functions
// return [errors.ErrUnsupported]. Each package that uses it
// says itself on which of these systems it works.
package localfile

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
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

// IsAt reports whether f is the file at path: a cleaner may have deleted it, and
// others lock a new one then.
func IsAt(f *os.File, path string) (bool, error) {
	own, err := f.Stat()
	if err != nil {
		return false, err
	}
	there, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return false, nil
	}
	return err == nil && os.SameFile(own, there), err
}
