package file

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/localfile"
)

// Sharers lock the file shared, and the kernel keeps exclusive requests out. To get in, each sharer
// first locks a second file, the turn, exclusively for a moment. A writer that must wait for the file
// also tries to lock the turn meanwhile, and keeps it until it has the file. That does two things:
//
//   - With the turn and its shared lock, a sharer is the only one that writes the record: the first
//     draws the token and writes that the lock is shared; the others find that, and have the same
//     token.
//   - A waiting writer keeps new sharers out. That ends when the writer leaves or has the lock, or, by
//     the kernel, when its process ends.
//
// What can coincide:
//
//   - A sharer and a writer come to a free file: the kernel gives it to one of them. A sharer that
//     waits for the file keeps its turn meanwhile. No holder of the file waits for the turn, so there
//     is no deadlock.
//   - A sharer comes or leaves: for a moment it has the file exclusively, if no other shares it.
//     Another that comes just then takes it for a visitor, and tries again. If it cannot get the file
//     exclusively because of a visitor, the record continues to say that the file is shared. The next
//     sharer relies on the kernel's lock.
//   - A sharer dies at any moment: the kernel unlocks both files. If it has not written the record, the
//     next one does. A sharer or writer that is stopped while it waits keeps the turn: other sharers
//     wait behind it.
//   - A sharer with a MinHold leaves, and others stay: it takes the turn to write the new end. If a
//     waiting writer has the turn, the file keeps the old end, which is enough if it is close to the
//     new one.
//   - A writer finds that a MinHold still keeps the free file: it waits for its end without the file.
//   - A caller stops waiting: what it had or is granted is unlocked. A thread still blocked for the
//     turn or the file unlocks it as soon as it gets it.
//   - Somebody deletes the turn: a sharer that waited with it checks for it once it has the file, and
//     starts over; sharers may get in before a writer that has it.

// turnOf returns the path of the turn of the lock file at path.
func turnOf(path string) string { return strings.TrimSuffix(path, suffix) + turnSuffix }

// waitShared is Acquire for a sharer that must wait, first for the turn.
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
			// If the turn was deleted meanwhile, another may write too.
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

// count adds to the number of this Backend's sharers at path, up to MaxSharers.
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
