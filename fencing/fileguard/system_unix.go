//go:build linux || darwin || freebsd

package fileguard

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

const supported = true

// openFlags keep a symbolic link from leading elsewhere, and a named pipe from
// blocking.
const openFlags = unix.O_NOFOLLOW | unix.O_NONBLOCK

// How to call flock.
const (
	exclusive = unix.LOCK_EX
	unlock    = unix.LOCK_UN
)

// flock locks or unlocks f without waiting. The error is errBusy if others have
// locks on the file that are in the way.
func flock(f *os.File, how int) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var lockErr error
	err = conn.Control(func(fd uintptr) {
		for {
			lockErr = unix.Flock(int(fd), how|unix.LOCK_NB)
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

// checkLocal returns an error if dir is on a file system where flock does not
// do what it does on a disk of this host.
func checkLocal(dir string) error {
	var st unix.Statfs_t
	for {
		err := unix.Statfs(dir, &st)
		if err == nil {
			break
		}
		if !errors.Is(err, unix.EINTR) {
			return &fs.PathError{Op: "statfs", Path: dir, Err: err}
		}
	}
	if kind := remoteKind(&st); kind != "" {
		return fmt.Errorf("directory %s is on a file system of type %s, where file locks are not kept by this host alone: guard files on a local disk only: %w",
			dir, kind, errors.ErrUnsupported)
	}
	return nil
}

// syncDir makes what was renamed, made and removed in dir last over a power cut.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	err = d.Sync()
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOTSUP) {
		return nil // this file system has no such thing, and does it by itself or not at all
	}
	return err
}

// inodeOf returns what tells a file from every other of its directory, as long
// as it is there.
func inodeOf(info fs.FileInfo) uint64 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return st.Ino
	}
	return 0
}

// inherit gives f the owner, group and permissions that old has.
func inherit(f *os.File, old fs.FileInfo) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	now, ok1 := info.Sys().(*syscall.Stat_t)
	was, ok2 := old.Sys().(*syscall.Stat_t)
	if ok1 && ok2 {
		if now.Gid != was.Gid {
			// Not left out: the permissions of the group would go to another.
			if err := f.Chown(-1, int(was.Gid)); err != nil {
				return fmt.Errorf("the new content cannot be given the group %d, which the file has: join that group, or change the file's: %w", was.Gid, err)
			}
		}
		if now.Uid != was.Uid {
			if err := f.Chown(int(was.Uid), -1); err != nil && !errors.Is(err, unix.EPERM) {
				return err
			}
		}
	}
	return f.Chmod(old.Mode().Perm())
}
