//go:build linux || darwin || freebsd

package localfile

import (
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// OpenFlags are for [os.OpenFile], beside those that say what the file is opened
// for. They keep a symbolic link from leading elsewhere, and a named pipe from
// blocking.
const OpenFlags = unix.O_NOFOLLOW | unix.O_NONBLOCK

// How says what [Flock] does.
type How int

// Exclusive, Shared and Unlock are what Flock can do. The first two wait as long
// as it takes; with NoWait, as in Exclusive|NoWait, they do not.
const (
	Exclusive How = unix.LOCK_EX
	Shared    How = unix.LOCK_SH
	Unlock    How = unix.LOCK_UN
	NoWait    How = unix.LOCK_NB
)

// Flock locks or unlocks f. Without NoWait it blocks a thread, which nothing can
// call back, until no lock of others is in the way; with NoWait the error is
// [ErrBusy] then. It may be called while others use f or close it. All other
// errors are those of [os.File.SyscallConn], or an [fs.PathError].
func Flock(f *os.File, how How) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var lockErr error
	// Inside Control the descriptor stays what it is, whoever closes f.
	err = conn.Control(func(fd uintptr) {
		for {
			lockErr = unix.Flock(int(fd), int(how))
			if !errors.Is(lockErr, unix.EINTR) {
				return
			}
		}
	})
	switch {
	case err != nil:
		return err
	case errors.Is(lockErr, unix.EWOULDBLOCK):
		return ErrBusy
	case lockErr != nil:
		return &fs.PathError{Op: "flock", Path: f.Name(), Err: lockErr}
	}
	return nil
}
