//go:build linux || darwin

package file

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
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
	return slices.ContainsFunc([]error{unix.EMFILE, unix.ENFILE, unix.ENOMEM, unix.ENOLCK, unix.ENOSPC, unix.EDQUOT,
		unix.EIO}, func(e error) bool { return errors.Is(err, e) })
}

// checkWritable returns an error if this process cannot make files in dir.
func checkWritable(dir string) error {
	if err := unix.Faccessat(unix.AT_FDCWD, dir, unix.W_OK|unix.X_OK, unix.AT_EACCESS); err != nil {
		return fmt.Errorf("cannot make files in lock directory %s: %w", dir, err)
	}
	return nil
}

// owner returns the ID of the user who owns the file, -1 if the system does not say.
func owner(info fs.FileInfo) int {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(st.Uid)
	}
	return -1
}

// inode returns the number of a file within its file system.
func inode(info fs.FileInfo) string {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return strconv.FormatUint(st.Ino, 10)
	}
	return ""
}
