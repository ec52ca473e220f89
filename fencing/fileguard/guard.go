package fileguard

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/golockers/locker"
	"github.com/golockers/locker/fencing"
	"github.com/golockers/locker/internal/clock"
	"github.com/golockers/locker/internal/localfile"
	"github.com/golockers/locker/internal/oneline"
)

// Guard lets a file be replaced only with a token that is not lower than any token accepted for the
// file before, in any process of this host. Make it with [New]. It may be used from many goroutines at
// once, and there may be many Guards for one file. A Guard need not be closed, because it keeps nothing
// open.
type Guard struct {
	path string // as the caller gave it: the name of the resource
	abs  string
	dir  string
	side string // the sidecar, which has the mark and is locked
	temp string // the new content before the rename; there is never more than one

	step func(name string) // for tests: the step that was just done
}

const (
	sideSuffix = ".fence"
	tempSuffix = ".fence-new"
	maxName    = 255 - len(".") - len(tempSuffix)
)

// New returns a Guard for the file at path. The file need not exist, but its directory must. A relative
// path is relative to the current directory of the process. In errors, the path is the name of the
// resource.
//
// The error matches [locker.ErrInvalid] if a guarded file cannot have that name, and
// [errors.ErrUnsupported] if this system has no flock(2), or if the file system of the
// directory is not local to this host.
func New(path string) (*Guard, error) {
	base := filepath.Base(path)
	switch {
	case path == "" || strings.ContainsRune(path, 0):
		return nil, invalid("%q: no file can be called that", path)
	case os.IsPathSeparator(path[len(path)-1]) || base == "." || base == "..":
		return nil, invalid("%q names a directory: give the path of a file", path)
	case strings.HasPrefix(base, ".") &&
		(strings.HasSuffix(base, sideSuffix) || strings.HasSuffix(base, tempSuffix)):
		return nil, invalid("%q is reserved for the guard's own files: choose a name that does not begin "+
			"with a dot and end in %s or %s", path, sideSuffix, tempSuffix)
	case len(base) > maxName:
		return nil, invalid("the file name of %.40q… has %d bytes: the limit is %d, since the names of the "+
			"guard's own files are longer", path, len(base), maxName)
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("fileguard: %w", err)
	}
	dir := filepath.Dir(abs)
	if _, err = localfile.Dir(dir); err != nil {
		return nil, fmt.Errorf("fileguard: %q: directory %s: %w", path, dir, err)
	}
	return &Guard{
		path: path,
		abs:  abs,
		dir:  dir,
		side: filepath.Join(dir, "."+base+sideSuffix),
		temp: filepath.Join(dir, "."+base+tempSuffix),
	}, nil
}

// WriteFile replaces the content of the file with data if token is not lower than the
// mark, and raises the mark to token. A program that reads the file sees the whole old
// content or the whole new content.
//
// If the token is too low, the error is a [*fencing.StaleError]; without a token it matches
// [fencing.ErrMissing]. An error of the system (a full disk, a directory that is not writable) is
// wrapped. After any error nothing was written, unless the error says that the write is done: then only
// syncing it to disk has failed.
//
// An existing file keeps its permissions, its owner and its group; see "Files" in the package
// comment. perm is for a new file, before umask.
//
// Writes to one file happen one at a time. WriteFile waits for its turn until ctx is done; then the
// error is that of ctx, with its cause.
func (g *Guard) WriteFile(ctx context.Context, token fencing.Token, data []byte, perm fs.FileMode) error {
	if perm&^fs.ModePerm != 0 {
		return invalid("permissions %v of %q: give permission bits only", perm, g.path)
	}
	return g.change(ctx, "write", token, func(old fs.FileInfo) (func() error, error) {
		if err := g.prepare(data, perm, old); err != nil {
			return nil, err
		}
		return func() error { return os.Rename(g.temp, g.abs) }, nil
	})
}

// Remove deletes the file if token is not lower than the mark, and raises the mark to token. The mark
// stays when the file is gone. A missing file is not an error. Errors are those of [Guard.WriteFile].
func (g *Guard) Remove(ctx context.Context, token fencing.Token) error {
	return g.change(ctx, "remove", token, func(old fs.FileInfo) (func() error, error) {
		if old == nil {
			return nil, nil
		}
		return func() error { return os.Remove(g.abs) }, nil
	})
}

// Raise moves the mark up to token and writes nothing. After it has returned, no write with a lower
// token can happen. A holder calls it before reading the state on which its write depends. Errors are
// those of [Guard.WriteFile].
func (g *Guard) Raise(ctx context.Context, token fencing.Token) error {
	nothing := func(fs.FileInfo) (func() error, error) { return nil, nil }
	return g.change(ctx, "raise the mark of", token, nothing)
}

// change calls prepare, raises the mark to token, and then calls the function that
// prepare has returned, unless it is nil.
func (g *Guard) change(ctx context.Context, op string, token fencing.Token,
	prepare func(old fs.FileInfo) (func() error, error)) error {
	if err := fencing.Admit(g.path, token, 0); err != nil {
		return err
	}
	f, err := g.lock(ctx)
	if err != nil {
		return g.failed(op, err)
	}
	defer localfile.LetGo(f)
	mark, err := readMark(f)
	if err != nil {
		return g.failed(op, err)
	}
	if err := fencing.Admit(g.path, token, mark); err != nil {
		return err
	}
	var apply func() error
	old, err := g.look()
	if err == nil {
		apply, err = prepare(old)
	}
	if err == nil {
		err = clock.Over(ctx)
	}
	if err == nil {
		// Even if the mark is equal: its writer may not have synced it. After a failed sync, another
		// sync does not write the same page again, so write it anew.
		err = g.raise(f, token)
	}
	if err == nil && apply != nil {
		err = apply()
	}
	if err != nil {
		_ = os.Remove(g.temp) // if this fails, the next write removes it
		return g.failed(op, err)
	}
	if apply != nil {
		g.at("applied")
		if err := g.syncDir(); err != nil {
			return g.failed(op, fmt.Errorf("it is done, but may not survive a power failure: %w", err))
		}
	}
	return nil
}

// look returns the file at the guarded path, nil if there is none, or an error that
// says why it cannot be guarded.
func (g *Guard) look() (fs.FileInfo, error) {
	info, err := os.Lstat(g.abs)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	case info.Mode()&fs.ModeSymlink != 0:
		target, _ := os.Readlink(g.abs)
		return nil, fmt.Errorf("it is a symbolic link to %q: make the guard for that path", target)
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("it is not a regular file (%v)", info.Mode())
	}
	return info, nil
}

// prepare writes the new file next to the guarded one, and syncs it to disk.
func (g *Guard) prepare(data []byte, perm fs.FileMode, old fs.FileInfo) error {
	if err := os.Remove(g.temp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cannot remove the leftover of an earlier write: %w", err)
	}
	if old != nil {
		perm = 0o600 // until the file has the owner and group that the permissions are for
	}
	f, err := os.OpenFile(g.temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL|localfile.OpenFlags, perm)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil && old != nil {
		err = inherit(f, old)
	}
	if err == nil {
		err = g.sync(f, "prepared")
	}
	return oneline.Join(err, f.Close())
}

// sync syncs f to disk, and then reports the step. Steps are reported only here, so that a test notices
// a missing or misplaced sync.
func (g *Guard) sync(f *os.File, step string) error {
	if err := f.Sync(); err != nil {
		return err
	}
	g.at(step)
	return nil
}

// syncDir syncs the directory, with the files that were created, renamed and removed.
func (g *Guard) syncDir() error {
	d, err := os.Open(g.dir)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := g.sync(d, "synced"); !cannotSync(err) {
		return err
	}
	return nil // this file system cannot sync a directory
}

func (g *Guard) at(step string) {
	if g.step != nil {
		g.step(step)
	}
}

func (g *Guard) failed(op string, err error) error {
	return fmt.Errorf("fileguard: %s %q: %w", op, g.path, err)
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("fileguard: %w: %s", locker.ErrInvalid, fmt.Sprintf(format, args...))
}
