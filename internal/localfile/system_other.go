//go:build !linux && !darwin && !freebsd

package localfile

import (
	"errors"
	"io/fs"
	"os"
)

// OpenFlags are none here.
const OpenFlags = 0

// How says what [Flock] does.
type How int

// Exclusive, Shared, Unlock and NoWait have no meaning here.
const (
	Exclusive How = 1 << iota
	Shared
	Unlock
	NoWait
)

// Flock returns [errors.ErrUnsupported].
func Flock(*os.File, How) error { return errors.ErrUnsupported }

func remoteKind(string) (kind string, err error) { return "", errors.ErrUnsupported }

// Alive, Passes, Writable and Inode are not asked for where nothing can be locked.
func Alive(int) bool           { return false }
func Passes(error) bool        { return false }
func Writable(string) error    { return errors.ErrUnsupported }
func Inode(fs.FileInfo) string { return "" }
