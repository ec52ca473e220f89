//go:build linux || darwin || freebsd

package localfile

import (
	"errors"
	"io/fs"

	"golang.org/x/sys/unix"
)

// RemoteKind returns what the type of the file system that dir is on is called,
// as in "NFS", if flock does not do there what it does on a disk of this host:
// because other hosts write to it too, or because nobody knows where a lock
// goes. It returns "" for all other file systems, also for those that it does
// not know. The error is an [fs.PathError] if the system does not say.
//
// The caller is to refuse a directory of such a kind, in words of its own.
func RemoteKind(dir string) (kind string, err error) {
	var st unix.Statfs_t
	for {
		if err = unix.Statfs(dir, &st); !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		return "", &fs.PathError{Op: "statfs", Path: dir, Err: err}
	}
	return remoteKind(&st), nil
}
