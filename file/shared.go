package file

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/localfile"
)

// Sharers lock the file shared, and the kernel keeps those out who want it alone. To come in, each sharer first
// locks a second file beside it, the turn, alone, for a moment. A writer that has to wait for the file tries to lock
// it, too, at the same time, and keeps it until it has the file. That does two things:
//
//   - With the turn and its shared lock, a sharer is the only one who writes the record: the first one draws the
//     token, and writes that the lock is shared; the others find that, and have the same token.
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
//     does. One that is stopped while it waits, or a writer that is, keeps the turn: other sharers wait behind it.
//   - A writer finds that a MinHold still keeps the free file: it waits for the end of that without the file.
//   - A caller stops waiting: what it had or is granted is unlocked. A thread that is still blocked for the turn or
//     the file lets go of it at once.
//   - Somebody deletes the turn: a sharer that has waited with it looks for it when it has the file, and begins
//     again; a writer that has it may see sharers come in before it.

// turnOf returns the path of the turn of the lock file at path.
func turnOf(path string) string { return strings.TrimSuffix(path, suffix) + turnSuffix }

// waitShared is Acquire for a sharer that has to wait, first for the turn.
func (b *Backend) waitShared(ctx context.Context, req driver.Request) (driver.Grant, error) {
	path := b.path(req.Name)
	for {
		turn, err := b.get(ctx, waited{turnOf(path), localfile.Exclusive})
		if err != nil {
			return driver.Grant{}, err
		}
		var g driver.Grant
		f, err := b.get(ctx, waited{path, localfile.Shared})
		if err == nil {
			// With a turn that was deleted meanwhile, it is not the only one to write.
			if err = localfile.IsAt(turn, turnOf(path)); err == nil {
				g, err = b.enter(f, req)
			} else {
				localfile.LetGo(f)
			}
		}
		localfile.LetGo(turn)
		if !errors.Is(err, localfile.ErrReplaced) && !errors.Is(err, localfile.ErrBusy) {
			return g, err
		}
	}
}

// count adds to the number of sharers that this Backend has at path, up to MaxSharers.
func (b *Backend) count(path, name string, n int) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n > 0 && b.sharers[path] >= driver.MaxSharers {
		return fmt.Errorf("%w: %d share %q, and no more can", driver.ErrRefused, b.sharers[path], name)
	}
	if b.sharers[path] += n; b.sharers[path] == 0 {
		delete(b.sharers, path)
	}
	return nil
}
