package fileguard

import (
	"bufio"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"

	"github.com/golockers/locker/fencing"
	"github.com/golockers/locker/internal/localfile"
)

// WriteFile replaces the content of the file by data, as [Guard.Write] does.
func (g *Guard) WriteFile(ctx context.Context, token fencing.Token, data []byte, perm fs.FileMode) error {
	return g.Write(ctx, token, perm, func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	})
}

// Write replaces the file by a new one with what fill writes, if token is not
// lower than the mark, and raises the mark to it. Both happen, or neither; also
// if the process is killed, and, as far as the package comment says, if the
// power is cut. Who reads the file sees the old content or the new, whole.
//
// A token that is too low is a [*fencing.StaleError], and no token matches
// [fencing.ErrMissing]; fill is not called then. If fill returns an error, or
// ctx is done when it returns, nothing is written, the mark stays, and Write
// returns that. What the system refuses (a full disk, a directory that must not
// be written to) is in the error, and nothing is written, unless the error says
// that it is done: what failed then is to make it last.
//
// A file that exists keeps its permissions and its group; see "Files" in the
// package comment. perm is for a new one, before umask.
//
// Writes to one file happen one at a time. Write waits for its turn until ctx
// is done, and its turn begins before fill is called: have ready what is to be
// written.
func (g *Guard) Write(ctx context.Context, token fencing.Token, perm fs.FileMode, fill func(w io.Writer) error) error {
	const op = "write"
	switch {
	case perm&^fs.ModePerm != 0:
		return invalid("permissions %v of %q: give permission bits only", perm, g.path)
	case fill == nil:
		return invalid("nothing to fill %q with", g.path)
	}
	f, mark, old, err := g.begin(ctx, op, token)
	if err != nil {
		return err
	}
	defer localfile.LetGo(f)
	ready := false
	defer func() {
		if !ready { // also after a panic of fill
			_ = g.clean() // the next write does if this fails
		}
	}()
	inode, err := g.prepare(perm, old, fill)
	if err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return g.failed(op, err)
	}
	ready = true
	if _, err := g.move(f, record{mark: mark, next: token, how: replacing, inode: inode}, g.temp, g.abs); err != nil {
		return g.failed(op, err)
	}
	return nil
}

// Raise moves the mark up to token and leaves the file as it is. When it has
// returned, no write with a lower token can happen any more: a holder calls it
// before it reads what its write depends on. The error is as that of [Guard.Write].
func (g *Guard) Raise(ctx context.Context, token fencing.Token) error {
	const op = "raise the mark of"
	f, _, _, err := g.begin(ctx, op, token)
	if err != nil {
		return err
	}
	defer localfile.LetGo(f)
	if err = g.noteForGood(f, record{mark: token}, "noted"); err != nil {
		return g.failed(op, err)
	}
	return nil
}

// Remove deletes the file if token is not lower than the mark, and raises the
// mark to it; both happen, or neither, as with [Guard.Write]. The mark stays
// when the file is gone. That there is no file is no error.
func (g *Guard) Remove(ctx context.Context, token fencing.Token) error {
	const op = "remove"
	f, mark, old, err := g.begin(ctx, op, token)
	if err != nil {
		return err
	}
	defer localfile.LetGo(f)
	if err = g.syncDir("named"); err == nil {
		err = g.remove(f, mark, token, old)
	}
	if err != nil {
		return g.failed(op, err)
	}
	return nil
}

func (g *Guard) remove(f *os.File, mark, token fencing.Token, old fs.FileInfo) error {
	if old == nil {
		return g.noteForGood(f, record{mark: token}, "noted")
	}
	done, err := g.move(f, record{mark: mark, next: token, how: removing, inode: inodeOf(old)}, g.abs, g.temp)
	if done {
		err = errors.Join(err, g.clean())
	}
	return err
}

// Forget removes the mark of a file that is no more, and leaves the file alone
// if it is there. A token of any age passes afterwards.
func (g *Guard) Forget(ctx context.Context) error {
	const op = "forget the mark of"
	f, err := g.lock(ctx, false)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return g.failed(op, err)
	}
	defer localfile.LetGo(f)
	// The sidecar last: as long as it is there, it is what others lock. Those
	// who wait for it find that it is gone.
	if err := errors.Join(g.clean(), os.Remove(g.side), g.syncDir("forgotten")); err != nil {
		return g.failed(op, err)
	}
	return nil
}

// begin returns the sidecar, locked, with the mark that token may pass, and
// what is at the guarded path.
func (g *Guard) begin(ctx context.Context, op string, token fencing.Token) (f *os.File, mark fencing.Token, old fs.FileInfo, err error) {
	if err := fencing.Admit(g.path, token, 0); err != nil {
		return nil, 0, nil, err
	}
	if f, err = g.lock(ctx, true); err != nil {
		return nil, 0, nil, g.failed(op, err)
	}
	g.at("locked")
	if mark, err = g.settle(f); err != nil {
		err = g.failed(op, err)
	} else if err = fencing.Admit(g.path, token, mark); err == nil {
		if old, err = g.look(); err != nil {
			err = g.failed(op, err)
		}
	}
	if err != nil {
		localfile.LetGo(f)
		return nil, 0, nil, err
	}
	return f, mark, old, nil
}

// prepare writes the new file beside the place that it is for, so that it lasts,
// and returns its inode.
func (g *Guard) prepare(perm fs.FileMode, old fs.FileInfo, fill func(w io.Writer) error) (inode uint64, err error) {
	if old != nil {
		perm = 0o600 // until it has the group that the permissions are for
	}
	f, err := os.OpenFile(g.temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL|localfile.OpenFlags, perm)
	if err != nil {
		return 0, err
	}
	defer func() {
		if closeErr := f.Close(); err == nil {
			err = closeErr
		}
	}()
	g.at("made")
	w := bufio.NewWriterSize(f, 1<<16)
	if err := fill(w); err != nil {
		return 0, err
	}
	if err := w.Flush(); err != nil {
		return 0, err
	}
	g.at("filled")
	if old != nil {
		if err := inherit(f, old); err != nil {
			return 0, err
		}
	}
	if err := g.sync(f, "kept"); err != nil {
		return 0, err
	}
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return inodeOf(info), g.syncDir("named")
}
