//go:build linux || darwin || freebsd

package localfile

import (
	"errors"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// OpenFlags are for [os.OpenFile], beside those that say what the file is opened
// for. They keep a symbolic link from leading elsewhere, and a named pipe from
// blocking.
const OpenFlags = unix.O_NOFOLLOW | unix.O_NONBLOCK

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

// remoteKind returns what the type of the file system that dir is on is called, as in "NFS", if it is refused.
func remoteKind(dir string) (kind string, err error) {
	var st unix.Statfs_t
	for {
		if err = unix.Statfs(dir, &st); !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		return "", &fs.PathError{Op: "statfs", Path: dir, Err: err}
	}
	return kindOf(&st), nil
}

// Alive reports whether there is a process with this ID.
func Alive(pid int) bool {
	return pid > 0 && !errors.Is(unix.Kill(pid, 0), unix.ESRCH)
}

// Passes reports whether err may be gone when the same is tried again later.
func Passes(err error) bool {
	return slices.ContainsFunc([]error{unix.EMFILE, unix.ENFILE, unix.ENOMEM, unix.ENOLCK, unix.ENOSPC, unix.EDQUOT,
		unix.EIO}, func(e error) bool { return errors.Is(err, e) })
}

// Writable returns an error if this process cannot make files in dir.
func Writable(dir string) error {
	return unix.Faccessat(unix.AT_FDCWD, dir, unix.W_OK|unix.X_OK, unix.AT_EACCESS)
}

// Inode is the number of a file within its file system.
func Inode(info fs.FileInfo) string {
	return strconv.FormatUint(info.Sys().(*syscall.Stat_t).Ino, 10)
}
