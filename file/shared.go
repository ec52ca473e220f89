package file

import (
	"context"
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
//   - With the turn and its shared lock, a sharer is the only one who writes the record: the first one draws the
//     token, and writes that the lock is shared; the others find that, and have the same token. The next one who
//     has the file alone writes a record with a higher one.
//   - A writer that waits keeps new sharers out. The kernel ends this with the process, and the writer when it
//     leaves or has the lock. A sharer that waits for the turn is blocked in the kernel, as for the file, and looks
//     now and then whether the file is free all the same.
//
// Locks are never converted but by a sharer who leaves. What can meet:
//
//   - Two sharers come, or two that wait: the turn lets in one after the other.
//   - A sharer and a writer come to a free file: the kernel gives it to one of them. A sharer that waits for the
//     file keeps its turn meanwhile. Nobody who has the file waits for the turn, so nobody waits in a circle.
//   - A sharer leaves while others hold: its try to lock the file alone fails, and the record stays. If the last
//     one fails, too, since somebody looks at the file just then, or dies, the record says that the free file is
//     shared. The next one goes by the kernel's lock, and a sharer by the token, since no writer has been there.
//   - A sharer leaves while another comes: for a moment it has the file alone. The other takes it for a visitor,
//     and tries again.
//   - A sharer dies at any moment: the kernel unlocks both files. If it has not written the record, the next one
//     does.
//   - A writer finds that a MinHold still keeps the free file: it waits for the end of that without the file.
//   - A caller stops waiting: it unlocks its turn itself. A thread that is still blocked for the turn or the file
//     lets go of it at once, and one that shares the file without the turn writes nothing.
//   - Who has the turn is stopped: writers do not wait for it, and sharers take the free file alone, one after the
//     other.
//   - Somebody deletes the turn: a sharer that has waited with it looks for it when it has the file, and begins
//     again; a writer that has it may see sharers come in before it.

// turnOf returns the path of the turn of the lock file at path.
func turnOf(path string) string { return strings.TrimSuffix(path, suffix) + ".turn" }

// share is Acquire for a sharer.
func (b *Backend) share(ctx context.Context, req locker.Request) (locker.Grant, error) {
	on := waited{b.path(req.Name), localfile.Shared}
	turn := waited{turnOf(on.path), localfile.Exclusive}
	try := func() (locker.Grant, error) { return b.tryShare(on.path, req) }
	if !req.Wait {
		return again(ctx, try)
	}
	if !b.hasWaiters(turn) && !b.hasWaiters(on) {
		if g, err := try(); !waits(err) {
			return g, err
		}
	}
	req.Queued()
	for {
		t, g, err := b.takeTurn(ctx, turn, on, req)
		if t == nil {
			return g, err
		}
		f, err := b.get(ctx, on, nil)
		if err == nil {
			// With a turn that was deleted meanwhile, it is not the only one to write.
			there, lookErr := localfile.IsAt(t, turn.path)
			if there && lookErr == nil {
				return b.enter(t, f, req)
			}
			localfile.LetGo(f)
			err = lookErr
		}
		localfile.LetGo(t)
		if err != nil {
			return locker.Grant{}, err
		}
	}
}

// tryShare lets a sharer in unless a writer has the lock, or waits for it.
func (b *Backend) tryShare(path string, req locker.Request) (g locker.Grant, err error) {
	// Within a process, they do not have to try again and again.
	b.turns.Lock()
	defer b.turns.Unlock()
	turn, err := b.tryLock(turnOf(path), req.Name, localfile.Exclusive)
	if err != nil {
		return g, err
	}
	f, err := b.tryLock(path, req.Name, localfile.Shared)
	if err != nil {
		localfile.LetGo(turn)
		return g, err
	}
	return b.enter(turn, f, req)
}

// enter makes a hold of the locks of a sharer, which keeps the turn no longer.
func (b *Backend) enter(turn, f *os.File, req locker.Request) (locker.Grant, error) {
	defer localfile.LetGo(turn)
	now := time.Now()
	r, before, err := join(f, req, now)
	if err == nil {
		err = b.count(f.Name(), req.Name, 1)
	}
	if err != nil {
		localfile.LetGo(f)
		return locker.Grant{}, err
	}
	return locker.Grant{
		Hold:     &hold{file: f, name: req.Name, record: r, sharers: b, before: before},
		Validity: locker.Validity{Since: now},
		Token:    r.token,
	}, nil
}

// join finds the record of those who share f, or writes the first. before is until when
// others of them keep the lock. What a dead process has written is replaced, so that
// the record names somebody who lives.
func join(f *os.File, req locker.Request, now time.Time) (r record, before time.Time, err error) {
	old, content, err := read(f, req.Name)
	if err != nil || !old.shared {
		r, err = take(f, req, now)
		return r, before, err
	}
	r = old
	kept := now.Add(req.MinHold)
	switch {
	case req.MinHold > 0 && kept.After(old.kept):
		r.kept, r.since = kept, now
	case req.MinHold > 0 && kept.After(old.under):
		r.under = kept
	case alive(old.pid):
		return r, old.kept, nil
	}
	r.pid, r.label = os.Getpid(), req.Label
	return r, old.kept, write(f, req.Name, r, content)
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
