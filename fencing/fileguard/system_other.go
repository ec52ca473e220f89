//go:build !linux && !darwin && !freebsd

package fileguard

import (
	"errors"
	"io/fs"
	"os"
)

// New returns an error on this system, so nothing below is called.

func cannotSync(error) bool               { return false }
func inherit(*os.File, fs.FileInfo) error { return errors.ErrUnsupported }
