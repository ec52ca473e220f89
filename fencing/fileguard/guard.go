package fileguard

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/golockers/locker"
	"github.com/golockers/locker/fencing"
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
// has to. A relative path is taken from where the process is now. The path is the
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
		var kind string
		if kind, err = localfile.RemoteKind(dir); err == nil && kind != "" {
			err = fmt.Errorf("directory %s is on a file system of type %s, where file locks are not kept by this host alone: guard files on a local disk only: %w",
				dir, kind, errors.ErrUnsupported)
		}
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
		sideMode: localfile.ModeIn(info.Mode()),
	}, nil
}

// WriteFile replaces the content of the file by data if token is not lower than
// the mark, and raises the mark to it. A program that reads the file sees the old
// content or the new, whole.
//
// A token that is too low is a [*fencing.StaleError], and no token matches
// [fencing.ErrMissing]. What the system refuses (a full disk, a directory that
// must not be written to) is in the error, and nothing is written, unless the
// error says that it is done: what failed then is to make it last.
//
// A file that exists keeps its permissions and its group; see "Files" in the
// package comment. perm is for a new one, before umask.
//
// Writes to one file happen one at a time. WriteFile waits for its turn until ctx
// is done.
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

// Remove deletes the file if token is not lower than the mark, and raises the
// mark to it, which stays when the file is gone. That there is no file is no
// error. The error is as that of [Guard.WriteFile].
func (g *Guard) Remove(ctx context.Context, token fencing.Token) error {
	return g.change(ctx, "remove", token, func(old fs.FileInfo) (func() error, error) {
		if old == nil {
			return nil, nil
		}
		return func() error { return os.Remove(g.abs) }, nil
	})
}

// Raise moves the mark up to token and writes nothing. When it has returned, no
// write with a lower token can happen any more: a holder calls it before it reads
// what its write depends on. The error is as that of [Guard.WriteFile].
func (g *Guard) Raise(ctx context.Context, token fencing.Token) error {
	return g.change(ctx, "raise the mark of", token, func(fs.FileInfo) (func() error, error) { return nil, nil })
}

// Mark returns the highest token that was accepted for the file; 0 if there is
// none. By the time it is read it may be out of date. Mark waits for nobody.
func (g *Guard) Mark(ctx context.Context) (fencing.Token, error) {
	mark, err := g.glance(ctx)
	if err != nil {
		return 0, g.failed("read the mark of", err)
	}
	return mark, nil
}

// change raises the mark to token between what prepare does and what it returns,
// if that is not nil.
func (g *Guard) change(ctx context.Context, op string, token fencing.Token, prepare func(old fs.FileInfo) (func() error, error)) error {
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
		err = context.Cause(ctx)
	}
	if err == nil && token != mark {
		err = g.raise(f, token)
	}
	if err == nil && apply != nil {
		err = apply()
	}
	if err != nil {
		_ = os.Remove(g.temp) // the next write does if this fails
		return g.failed(op, err)
	}
	if apply != nil {
		g.at("applied")
		if err := g.syncDir(); err != nil {
			return g.failed(op, fmt.Errorf("it is done, but may not last over a power cut: %w", err))
		}
	}
	return nil
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

// prepare writes the new file beside the place that it is for, so that it lasts.
func (g *Guard) prepare(data []byte, perm fs.FileMode, old fs.FileInfo) error {
	if err := os.Remove(g.temp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cannot remove what an earlier write left behind: %w", err)
	}
	if old != nil {
		perm = 0o600 // until it has the group that the permissions are for
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
	return errors.Join(err, f.Close())
}

// sync makes what is in f last over a power cut, and is the step that says so:
// the step is told here and nowhere else, so that a test notices a sync that is
// missing or out of its order.
func (g *Guard) sync(f *os.File, step string) error {
	if err := f.Sync(); err != nil {
		return err
	}
	g.at(step)
	return nil
}

// syncDir makes what was renamed, made and removed in the directory last.
func (g *Guard) syncDir() error {
	d, err := os.Open(g.dir)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := g.sync(d, "synced"); !cannotSync(err) {
		return err
	}
	return nil // this file system has no such thing, and does it by itself or not at all
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
