package fileguard

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/golockers/locker"
	"github.com/golockers/locker/internal/localfile"
)

// Guard lets one file be replaced only by holders of tokens that are not lower
// than any that was accepted for it before, from whatever process of this host.
// Make it with [New]. It may be used from many goroutines at once, and there
// may be many for one file. It needs no end: it keeps nothing open.
type Guard struct {
	path     string // as it was given: the resource
	abs      string
	dir      string
	side     string // has the mark, and is what is locked
	temp     string // has the content before it is in place; there is never more than one
	sideMode fs.FileMode

	step func(name string) // for tests: what was just done
}

const (
	sideSuffix = ".fence"
	tempSuffix = ".fence-new"
	maxName    = 255 - len(".") - len(tempSuffix)
)

// New returns a guard of the file at path, which need not exist; its directory
// has to. A relative path is taken from where the process is now. It is the
// name of the resource in errors.
//
// The error matches [locker.ErrInvalid] if no guarded file can have that name,
// and [errors.ErrUnsupported] if this system has no flock(2), or the directory
// is on a file system that is not one of this host alone.
func New(path string) (*Guard, error) {
	if !supported {
		return nil, fmt.Errorf("fileguard: no file locks to build on under %s: %w", runtime.GOOS, errors.ErrUnsupported)
	}
	base := filepath.Base(path)
	switch {
	case path == "" || strings.ContainsRune(path, 0):
		return nil, invalid("%q: no file can be called that", path)
	case os.IsPathSeparator(path[len(path)-1]) || base == "." || base == "..":
		return nil, invalid("%q names a directory: give the path of a file", path)
	case strings.HasPrefix(base, ".") && (strings.HasSuffix(base, sideSuffix) || strings.HasSuffix(base, tempSuffix)):
		return nil, invalid("%q is a name of the guards' own: choose one that does not begin with a dot and end in %s or %s", path, sideSuffix, tempSuffix)
	case len(base) > maxName:
		return nil, invalid("the file name of %.40q… has %d bytes: the limit is %d, since the names of the guard's own are longer", path, len(base), maxName)
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("fileguard: %w", err)
	}
	dir := filepath.Dir(abs)
	info, err := os.Stat(dir)
	if err == nil && !info.IsDir() {
		err = fmt.Errorf("%s is not a directory", dir)
	}
	if err == nil {
		err = checkLocal(dir)
	}
	if err != nil {
		return nil, fmt.Errorf("fileguard: %q: %w", path, err)
	}
	return &Guard{
		path:     path,
		abs:      abs,
		dir:      dir,
		side:     filepath.Join(dir, "."+base+sideSuffix),
		temp:     filepath.Join(dir, "."+base+tempSuffix),
		sideMode: sideModeIn(info.Mode()),
	}, nil
}

// checkLocal returns an error if dir is on a file system where flock does not
// do what it does on a disk of this host.
func checkLocal(dir string) error {
	kind, err := localfile.RemoteKind(dir)
	if err == nil && kind != "" {
		err = fmt.Errorf("directory %s is on a file system of type %s, where file locks are not kept by this host alone: guard files on a local disk only: %w",
			dir, kind, errors.ErrUnsupported)
	}
	return err
}

func (g *Guard) at(step string) {
	if g.step != nil {
		g.step(step)
	}
}

// look returns what is at the guarded path, nil if there is nothing, or why it
// cannot be guarded.
func (g *Guard) look() (fs.FileInfo, error) {
	info, err := os.Lstat(g.abs)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	case info.Mode()&fs.ModeSymlink != 0:
		target, _ := os.Readlink(g.abs)
		return nil, fmt.Errorf("it is a symbolic link to %q: guard the file that it leads to, under that name", target)
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("it is no file but %v", info.Mode())
	}
	return info, nil
}

func (g *Guard) failed(op string, err error) error {
	return fmt.Errorf("fileguard: %s %q: %w", op, g.path, err)
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("fileguard: %w: %s", locker.ErrInvalid, fmt.Sprintf(format, args...))
}
