//go:build !linux && !darwin

package file

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
	shared    = 0
	unlock    = 0
	noWait    = 0
)

func flock(*os.File, int) error            { return errors.ErrUnsupported }
func alive(int) bool                       { return false }
func passes(error) bool                    { return false }
func isMissing(err error) bool             { return errors.Is(err, fs.ErrNotExist) }
func checkWritable(string) error           { return errors.ErrUnsupported }
func checkLocal(string) error              { return errors.ErrUnsupported }
func owner(fs.FileInfo) (uid int, ok bool) { return 0, false }
