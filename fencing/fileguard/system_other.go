//go:build !linux && !darwin && !freebsd

package fileguard

import (
	"errors"
	"io/fs"
	"os"
)

// Nothing below is reached: New returns an error here.

const supported = false

const (
	openFlags = 0
	exclusive = 0
	unlock    = 0
)

func flock(*os.File, int) error           { return errors.ErrUnsupported }
func checkLocal(string) error             { return errors.ErrUnsupported }
func syncDir(string) error                { return errors.ErrUnsupported }
func inodeOf(fs.FileInfo) uint64          { return 0 }
func inherit(*os.File, fs.FileInfo) error { return errors.ErrUnsupported }
