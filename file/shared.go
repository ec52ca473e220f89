package file

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/golockers/locker"
	"github.com/golockers/locker/internal/localfile"
)

// Sharers lock the file shared, and the kernel keeps those out who want it alone. To come in, each sharer first
// locks a second file beside it, the turn, alone, for a moment. A writer that has to wait for the file tries to lock
// it, too, at the same time, and keeps it until it has the file. That does two things:
//
//   - With the turn and its shared lock, or with the file alone, a sharer is the only one who writes the record: the
//     first one draws the token, and writes that the lock is shared; the others find that, and have the same token.
//   - A writer that waits keeps new sharers out. The kernel ends this with the process, and the writer when it
//     leaves or has the lock.
//
// What can meet:
//
//   - A sharer and a writer come to a free file: the kernel gives it to one of them. A sharer that waits for the
//     file keeps its turn meanwhile. Nobody who has the file waits for the turn, so nobody waits in a circle.
//   - A sharer comes or leaves: for a moment it has the file alone, if no other shares it. Another that comes just
//     then takes it for a visitor, and tries again. If it cannot have the file alone, since somebody looks at it, the
//     record goes on to say that the file is shared. The next one goes by the kernel's lock.
//   - A sharer dies at any moment: the kernel unlocks both files. If it has not written the record, the next one
//     does.
//   - A writer finds that a MinHold still keeps the free file: it waits for the end of that without the file. A sharer
//     that has the free file without the turn waits for that, too.
//   - A caller stops waiting: what it had or is granted is unlocked. A thread that is still blocked for the turn or
//     the file lets go of it at once.
//   - Somebody deletes the turn: a sharer that has waited with it looks for it when it has the file, and begins
//     again; a writer that has it may see sharers come in before it.

// turnOf returns the path of the turn of the lock file at path.
func turnOf(path string) string { return strings.TrimSuffix(path, suffix) + ".turn" }

// waitShared is Acquire for a sharer that has to wait, first for the turn.
func (b *Backend) waitShared(ctx context.Context, req locker.Request) (g locker.Grant, err error) {
	path := b.path(req.Name)
	share := func(t, f *os.File, err error) (locker.Grant, error) {
		if t != nil {
			defer localfile.LetGo(t)
			if f, err = b.get(ctx, waited{path, localfile.Shared}); err == nil {
				// With a turn that was deleted meanwhile, it is not the only one to write.
				if err = isAt(t, turnOf(path)); err != nil {
					localfile.LetGo(f)
				}
			}
		}
		if err != nil {
			return locker.Grant{}, err
		}
		return b.enter(f, req, t != nil)
	}
	for again := true; again; again = errors.Is(err, errReplaced) || errors.Is(err, localfile.ErrBusy) {
		g, err = share(b.takeTurn(ctx, path))
	}
	return g, err
}

// stoppedAfter is how long a sharer waits for nothing but the turn.
const stoppedAfter = time.Second

// takeTurn returns the turn for a sharer, or the lock, which it has alone then. A process that has the turn may
// be stopped, and leaves the lock free, and the turn locked, for as long. So a sharer that has waited for long
// also stands in the kernel's queue for the lock, behind the writer that has the turn if that one lives.
func (b *Backend) takeTurn(ctx context.Context, path string) (turn, lock *os.File, err error) {
	turns, leave := b.wait(waited{turnOf(path), localfile.Exclusive})
	defer leave()
	late := time.After(stoppedAfter)
	for free := (<-chan locked)(nil); ; {
		select {
		case l := <-turns:
			return l.file, nil, l.err
		case l := <-free:
			return nil, l.file, l.err
		case <-late:
			free, leave = b.wait(waited{path, localfile.Exclusive})
			defer leave()
		case <-ctx.Done():
			return nil, nil, b.leaves(ctx)
		}
	}
}

// count adds to the number of sharers that this Backend has at path, up to MaxSharers.
func (b *Backend) count(path, name string, n int) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n > 0 && b.sharers[path] >= locker.MaxSharers {
		return fmt.Errorf("%w: %d share %q, and no more can", locker.ErrRefused, b.sharers[path], name)
	}
	if b.sharers[path] += n; b.sharers[path] == 0 {
		delete(b.sharers, path)
	}
	return nil
}
