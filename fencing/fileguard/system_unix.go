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
	now, ok1 := info.Sys().(*syscall.Stat_t)
	was, ok2 := old.Sys().(*syscall.Stat_t)
	if ok1 && ok2 {
		if now.Gid != was.Gid {
			// An error here is not ignored: another group would get the permissions.
			if err := f.Chown(-1, int(was.Gid)); err != nil {
				return fmt.Errorf("the new content cannot get the group %d, which the file has: join that "+
					"group, or change the group of the file: %w", was.Gid, err)
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
