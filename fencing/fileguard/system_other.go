//go:build !linux && !darwin && !freebsd

package fileguard

import (
	"errors"
	"io/fs"
	"os"
)

// Nothing below is reached: New returns an error here.

const supported = false

func cannotSync(error) bool               { return false }
func inherit(*os.File, fs.FileInfo) error { return errors.ErrUnsupported }
