//go:build !linux && !darwin && !freebsd

package localfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
)

// OpenFlags are none here.
const OpenFlags = 0

// Flock returns [errors.ErrUnsupported].
func Flock(*os.File, How) error { return errors.ErrUnsupported }

func remoteKind(string) (kind string, err error) {
	return "", fmt.Errorf("no usable file locks on %s: %w", runtime.GOOS, errors.ErrUnsupported)
}

// Alive, Passes, Writable and Inode are not asked for where nothing can be locked.
func Alive(int) bool           { return false }
func Passes(error) bool        { return false }
func Writable(string) error    { return errors.ErrUnsupported }
func Inode(fs.FileInfo) string { return "" }
