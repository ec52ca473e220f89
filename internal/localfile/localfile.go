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
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// How says what [Flock] does.
type How int

// Shared, Exclusive and Unlock are what Flock can do. The first two wait as long
// as it takes; with NoWait, as in Exclusive|NoWait, they do not.
const (
	Shared How = 1 << iota // the numbers are those of flock(2), the same on every system
	Exclusive
	NoWait
	Unlock
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

// ErrReplaced is what [IsAt] returns: the file at the path is another one, or there is none.
var ErrReplaced = errors.New("the file was deleted or replaced: find out what does that, and keep it away")

// IsAt returns nil if f is the file at path: a cleaner may have deleted it, and others lock a new one then.
func IsAt(f *os.File, path string) error {
	own, err := f.Stat()
	if err != nil {
		return err
	}
	there, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) || err == nil && !os.SameFile(own, there) {
		return fmt.Errorf("%s: %w", path, ErrReplaced)
	}
	return err
}

// Dir returns the file info of dir, or an error that says why no files can be locked there: flock may not do in dir what
// it does on a disk of this host, because other hosts write to it, too, or because nobody knows where a lock goes. Then
// the error matches [errors.ErrUnsupported]. Kinds of file systems that are not known here pass.
func Dir(dir string) (fs.FileInfo, error) {
	kind, err := remoteKind(dir) // first: such a file system may not answer anything else
	switch {
	case err != nil:
		return nil, err
	case kind != "":
		return nil, fmt.Errorf("it is on a file system of type %s, where file locks are not kept by this host alone: "+
			"choose one on a local disk: %w", kind, errors.ErrUnsupported)
	}
	info, err := os.Stat(dir)
	if err == nil && !info.IsDir() {
		err = errors.New("it is not a directory")
	}
	return info, err
}

// Regular returns an error, and closes f, if f is no regular file.
func Regular(f *os.File) error {
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a regular file (%v): find out what made it, and delete it", f.Name(), info.Mode())
	}
	if err != nil {
		_ = f.Close()
	}
	return err
}

// openTries bounds how often in a row Open may find the file replaced: more often than any cleaner deletes.
const openTries = 1000

// Open opens the file at path, which create makes if it is missing, and locks it, until that is the file at path:
// between open and lock, a cleaner may have deleted it. If the file has appeared or disappeared meanwhile, the error
// of create matches [fs.ErrExist].
func Open(path string, how How, create func() (*os.File, error)) (*os.File, error) {
	for range openTries {
		f, err := os.OpenFile(path, os.O_RDWR|OpenFlags, 0)
		if errors.Is(err, fs.ErrNotExist) {
			f, err = create()
		}
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err == nil {
			err = Regular(f)
		}
		if err != nil {
			return nil, err
		}
		if err = Flock(f, how); err == nil {
			err = IsAt(f, path)
		}
		if err == nil {
			return f, nil
		}
		LetGo(f)
		if !errors.Is(err, ErrReplaced) {
			return nil, err
		}
	}
	return nil, fmt.Errorf("%s: %w", path, ErrReplaced)
}
