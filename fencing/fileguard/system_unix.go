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

// cannotSync reports whether err says that the file system cannot sync directories.
func cannotSync(err error) bool {
	return errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOTSUP)
}

// inherit gives f the owner, group and permissions of old.
func inherit(f *os.File, old fs.FileInfo) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	now, was := info.Sys().(*syscall.Stat_t), old.Sys().(*syscall.Stat_t)
	if now.Uid != was.Uid || now.Gid != was.Gid { // else nothing is asked for that a service may be forbidden altogether
		// An error here is not ignored: others would get the permissions.
		if err := f.Chown(int(was.Uid), int(was.Gid)); err != nil {
			return fmt.Errorf("the new content cannot get the owner %d and the group %d, which the file has: write it as "+
				"that user: %w", was.Uid, was.Gid, err)
		}
	}
	return f.Chmod(old.Mode().Perm())
}
