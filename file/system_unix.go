//go:build linux || darwin

package file

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

const supported = true

// openFlags keep a symbolic link from leading out of the directory, and a
// named pipe from blocking.
const openFlags = unix.O_NOFOLLOW | unix.O_NONBLOCK

// How to call flock.
const (
	exclusive = unix.LOCK_EX
	shared    = unix.LOCK_SH
	unlock    = unix.LOCK_UN
	noWait    = unix.LOCK_NB
)

// flock locks or unlocks f. With noWait, the error is errBusy if others have
// locks on the file that are in the way.
func flock(f *os.File, how int) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var lockErr error
	// Inside Control the descriptor stays what it is, whoever closes f.
	err = conn.Control(func(fd uintptr) {
		for {
			lockErr = unix.Flock(int(fd), how)
			if !errors.Is(lockErr, unix.EINTR) {
				return
			}
		}
	})
	switch {
	case err != nil:
		return err
	case errors.Is(lockErr, unix.EWOULDBLOCK):
		return errBusy
	case lockErr != nil:
		return &fs.PathError{Op: "flock", Path: f.Name(), Err: lockErr}
	}
	return nil
}

// alive reports whether there is a process with this ID.
func alive(pid int) bool {
	return pid > 0 && !errors.Is(unix.Kill(pid, 0), unix.ESRCH)
}

// passes reports whether err may be gone when the same is tried again later.
func passes(err error) bool {
	for _, e := range []error{unix.EMFILE, unix.ENFILE, unix.ENOMEM, unix.ENOLCK, unix.ENOSPC, unix.EDQUOT, unix.EIO} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// isMissing reports whether err says that there is nothing at a path.
func isMissing(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR)
}

// checkWritable returns an error if this process cannot make files in dir.
func checkWritable(dir string) error {
	if err := unix.Faccessat(unix.AT_FDCWD, dir, unix.W_OK|unix.X_OK, unix.AT_EACCESS); err != nil {
		return fmt.Errorf("cannot make files in lock directory %s: %w", dir, err)
	}
	return nil
}

// checkLocal returns an error if dir is on a file system where flock does not
// do what it does on a disk of this host.
func checkLocal(dir string) error {
	var st unix.Statfs_t
	var err error
	for {
		if err = unix.Statfs(dir, &st); !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		return &fs.PathError{Op: "statfs", Path: dir, Err: err}
	}
	if kind := remoteKind(&st); kind != "" {
		return fmt.Errorf("lock directory %s is on a file system of type %s, where file locks are not kept by this host alone: choose one on a local disk", dir, kind)
	}
	return nil
}

// owner returns the ID of the user who owns the file.
func owner(info fs.FileInfo) (uid int, ok bool) {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, false
	}
	return int(st.Uid), true
}
