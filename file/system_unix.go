//go:build linux || darwin

package file

import (
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

const supported = true

// alive reports whether there is a process with this ID.
func alive(pid int) bool {
	return pid > 0 && !errors.Is(unix.Kill(pid, 0), unix.ESRCH)
}

// passes reports whether err may be gone when the same is tried again later.
func passes(err error) bool {
	for _, e := range []error{unix.EMFILE, unix.ENFILE, unix.ENOMEM, unix.ENOLCK, unix.ENOSPC,
		unix.EDQUOT, unix.EIO} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// checkWritable returns an error if this process cannot make files in dir.
func checkWritable(dir string) error {
	if err := unix.Faccessat(unix.AT_FDCWD, dir, unix.W_OK|unix.X_OK, unix.AT_EACCESS); err != nil {
		return fmt.Errorf("cannot make files in lock directory %s: %w", dir, err)
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

// inode returns the number of a file within its file system.
func inode(info fs.FileInfo) string {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return ""
	}
	return strconv.FormatUint(st.Ino, 10)
}
