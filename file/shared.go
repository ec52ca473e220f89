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

// Sharers lock the file shared, and the kernel keeps those out who want it alone. To
// come in, each sharer first locks a second file beside it, the turn, alone, for a
// moment. That does two things:
//
//   - With the turn and its shared lock, a sharer is the only one who writes the
//     record: the first one draws the token, and writes that the lock is shared; the
//     others find that, and have the same token. The next one who has the file alone
//     writes a record with a higher one.
//   - A writer that waits keeps the turn locked, and so keeps new sharers out. It says
//     so in the turn, so that a sharer who does not wait knows it from a sharer who is
//     just coming. The kernel ends this with the process, and the writer when it leaves
//     or has the lock.
//
// Locks are never converted but by a sharer who leaves. What can meet:
//
//   - Two sharers come: the turn lets in one after the other.
//   - A sharer and a writer come to a free file: the kernel gives it to one of them. A
//     sharer that waits for the file keeps its turn meanwhile. Nobody who has the file
//     waits for the turn, so nobody waits in a circle.
//   - A sharer leaves while others hold: its try to lock the file alone fails, and the
//     record stays. If the last one fails, too, since somebody looks at the file just
//     then, or dies, the record says that the free file is shared. The next one goes by
//     the kernel's lock, and a sharer by the token, since no writer has been there.
//   - A sharer leaves while another comes: for a moment it has the file alone. The other
//     takes it for a visitor, and tries again.
//   - A sharer dies at any moment: the kernel unlocks both files. If it has not written
//     the record, the next one does.
//   - A writer finds that a MinHold of sharers still keeps the free file: it waits for the
//     end of that with the turn, and without the file.
//   - A writer stops waiting: it unlocks the turn itself. Its thread may still be
//     blocked for the file, and lets go of that at once.

// turnOf returns the path of the turn of the lock file at path.
func turnOf(path string) string { return strings.TrimSuffix(path, suffix) + ".turn" }

// share is Acquire for a sharer.
func (b *Backend) share(ctx context.Context, req locker.Request) (locker.Grant, error) {
	on := waited{path: b.path(req.Name), shared: true}
	try := func() (locker.Grant, error) { return b.tryShare(on.path, req) }
	if !req.Wait {
		return again(ctx, try)
	}
	if !b.hasWaiters(on) {
		g, err := try()
		held := errors.Is(err, locker.ErrHeld) || errors.Is(err, localfile.ErrBusy)
		if !held && !errors.Is(err, errReplaced) {
			return g, err
		}
	}
	if req.Queued != nil {
		req.Queued()
	}
	l, err := b.wait(ctx, on, req)
	if err != nil {
		return locker.Grant{}, err
	}
	return b.enter(l, req)
}

// tryShare lets a sharer in unless a writer has the lock, or waits for it.
func (b *Backend) tryShare(path string, req locker.Request) (g locker.Grant, err error) {
	// Within a process, they do not have to try again and again.
	b.turns.Lock()
	defer b.turns.Unlock()
	var l locked
	if l.turn, err = b.tryLock(turnOf(path), req.Name, localfile.Exclusive); err != nil {
		return g, err
	}
	if l.file, err = b.tryLock(path, req.Name, localfile.Shared); err != nil {
		l.letGo()
		return g, err
	}
	return b.enter(l, req)
}

// enter makes a hold of the locks of a sharer, which keeps the turn no longer.
func (b *Backend) enter(l locked, req locker.Request) (locker.Grant, error) {
	if r, _, err := read(l.turn, req.Name); err == nil && r.pid != 0 {
		_ = clearHolder(l.turn, req.Name, r) // a writer that was killed as it waited
	}
	now := time.Now()
	r, before, err := join(l.file, req, now)
	if err == nil {
		err = b.count(l.file.Name(), req.Name, 1)
	}
	if err != nil {
		l.letGo()
		return locker.Grant{}, err
	}
	localfile.LetGo(l.turn)
	return locker.Grant{
		Hold:     &hold{file: l.file, name: req.Name, record: r, sharers: b, before: before},
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
	if kept := now.Add(req.MinHold); req.MinHold > 0 && kept.After(old.kept) {
		r.kept, r.since = kept, now
	} else if alive(old.pid) {
		return r, old.kept, nil
	}
	r.pid, r.label = os.Getpid(), req.Label
	return r, old.kept, write(f, req.Name, r, content)
}

// leave writes what a sharer leaves, which is about to unlock its file.
func (h *hold) leave() {
	b, path := h.sharers, h.file.Name()
	_ = b.count(path, h.name, -1)
	if h.record.kept.After(time.Now()) {
		// It is taken back. If a writer waits, the MinHold stays.
		turn, err := again(context.Background(), func() (*os.File, error) {
			return b.tryLock(turnOf(path), h.name, localfile.Exclusive)
		})
		if err == nil {
			r, content, err := read(h.file, h.name)
			if err == nil && r.kept.Equal(h.record.kept) {
				r.kept = h.before
				_ = write(h.file, h.name, r, content)
			}
			localfile.LetGo(turn)
		}
	}
	if localfile.Flock(h.file, localfile.Exclusive|localfile.NoWait) != nil {
		return // others hold
	}
	if r, _, err := read(h.file, h.name); err == nil && r.shared && r.left(time.Now()) <= 0 {
		_ = clearHolder(h.file, h.name, r)
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

// The pauses between the tries of a waiting writer to get the turn. Most succeed at
// once, but for a name that was never shared, which has no turn.
const (
	firstTurn = time.Millisecond
	lastTurn  = 50 * time.Millisecond
	// A turn that it has may be deleted.
	lookAtTurn = time.Second
)

// keepOutSharers keeps new sharers out until stop is called. It begins at once or, if one
// of them has the turn just now, when that one has come in.
func (b *Backend) keepOutSharers(path string, req locker.Request) (stop func()) {
	stopped, done := make(chan struct{}), make(chan struct{})
	path = turnOf(path)
	go func() {
		defer close(done)
		var turn *os.File
		var r record
		for pause := firstTurn; ; pause = min(2*pause, lastTurn) {
			if turn == nil {
				turn, r = takeTurn(path, req)
			} else if there, err := localfile.IsAt(turn, path); err == nil && !there {
				localfile.LetGo(turn)
				turn = nil
			}
			if turn != nil {
				pause = lookAtTurn
			}
			select {
			case <-time.After(pause):
			case <-stopped:
				if turn != nil {
					_ = clearHolder(turn, req.Name, r)
					localfile.LetGo(turn)
				}
				return
			}
		}
	}()
	return func() {
		close(stopped)
		<-done
	}
}

// keptLook is how often a writer looks whether the MinHold of sharers still keeps it out:
// it may be taken back, or broken.
const keptLook = 200 * time.Millisecond

// keptBySharers returns for how long a MinHold of sharers still keeps the lock of f.
func keptBySharers(f *os.File, name string) time.Duration {
	r, _, err := read(f, name)
	if err != nil || !r.shared {
		return 0
	}
	return r.left(time.Now())
}

// takeTurn locks the turn for a writer if it is there and nobody has it. An error means
// that sharers are not kept out, and nothing worse.
func takeTurn(path string, req locker.Request) (*os.File, record) {
	turn, err := os.OpenFile(path, os.O_RDWR|localfile.OpenFlags, 0)
	if err != nil || checkRegular(turn) != nil {
		return nil, record{}
	}
	if lock(turn, path, localfile.Exclusive|localfile.NoWait) != nil {
		_ = turn.Close()
		return nil, record{}
	}
	req.MinHold = 0 // which is the lock's
	r, err := take(turn, req, time.Now())
	if err != nil {
		localfile.LetGo(turn)
		return nil, record{}
	}
	return turn, r
}
