package file

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/clock"
	"github.com/golockers/locker/internal/localfile"
	"github.com/golockers/locker/internal/refusal"
)

// Backend keeps locks as locked files in a directory. It is a [driver.Backend]: programs pass it to
// locker.New and use the Client. Many Clients may share it.
type Backend struct {
	dir     string // absolute
	dirMode fs.FileMode

	life context.Context // ends with Close
	stop context.CancelFunc

	mu      sync.Mutex
	waits   map[waited][]chan locked // what a thread is blocked for, and its waiters in order
	sharers map[string]int           // by path: how many holds of this Backend share the file

	turns sync.Mutex // serializes the sharers of this process that take a turn for a moment
}

var _ driver.Backend = (*Backend)(nil)

// New returns a Backend with its locks in dir. It does not create dir, because a mistyped directory
// would exclude nobody. If dir does not exist (then the error matches [fs.ErrNotExist]), if files
// cannot be created in it, or if its file system is not local to this host, the error says what to
// change. If this system or that file system has no usable file locks, the error matches
// [errors.ErrUnsupported].
//
// A relative dir is relative to the current directory of the process.
func New(dir string) (*Backend, error) {
	info, abs, err := checkDir(dir)
	if err != nil {
		return nil, err
	}
	b := &Backend{
		dir:     abs,
		dirMode: info.Mode(),
		waits:   make(map[waited][]chan locked),
		sharers: make(map[string]int),
	}
	b.life, b.stop = context.WithCancel(context.Background())
	return b, nil
}

// Guarantees returns the promises described in the package comment.
func (b *Backend) Guarantees() driver.Guarantees {
	return driver.Guarantees{
		Backend:           "file",
		Scope:             driver.ScopeHost,
		Exclusion:         driver.ExclusionKernel,
		Fencing:           driver.FencingWhileKept,
		Shared:            driver.SharingWithTokens,
		DeadHolder:        driver.RecoveryAtOnce,
		SurvivesClockJump: true,
		SurvivesPause:     true,
		// By the host's clock: if it is set forward, the lock ends early.
		MaxMinHold:   366 * 24 * time.Hour,
		MinHoldSlack: minHoldSlack,
		RestsOn: "the file locks of one kernel, for the users who can write to the directory" +
			"; nobody deletes lock files in use (a holder notices within a third of its TTL); " +
			"tokens increase while their file is kept, and after its loss unless the clock was set back; " +
			"a MinHold is kept by the host's clock; a stuck holder holds forever unless MaxHold bounds it",
	}
}

// minHoldSlack is ample: a waiting writer checks five times a second.
const minHoldSlack = time.Second

// Acquire takes the lock if it is free. Otherwise it waits for the kernel to grant it if req.Wait is
// set, and is refused if not.
func (b *Backend) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	switch {
	case ctx.Err() != nil:
		return driver.Grant{}, ctx.Err()
	case b.life.Err() != nil:
		return driver.Grant{}, driver.ErrClosed
	}
	if !req.Wait {
		g, err := again(ctx, func() (driver.Grant, error) { return b.try(req) })
		return refusal.Answer(g, unavailable(err))
	}
	ctx, end := context.WithCancel(ctx)
	defer end()
	defer context.AfterFunc(b.life, end)()
	g, err := b.try(req)
	if errors.Is(err, driver.ErrHeld) || errors.Is(err, localfile.ErrBusy) {
		req.Queued()
		if req.Shared {
			g, err = b.waitShared(ctx, req)
		} else {
			g, err = b.waitAlone(ctx, req)
		}
	}
	return refusal.Answer(g, unavailable(err))
}

// try admits a writer if nobody has the lock, and a sharer unless a writer has it or waits for it.
func (b *Backend) try(req driver.Request) (driver.Grant, error) {
	path, how := b.path(req.Name), localfile.Exclusive
	if req.Shared {
		// Within a process, they need not retry.
		b.turns.Lock()
		defer b.turns.Unlock()
		turn, err := b.tryLock(turnOf(path), req.Name, how)
		if err != nil {
			return driver.Grant{}, err
		}
		defer localfile.LetGo(turn)
		how = localfile.Shared
	}
	f, err := b.tryLock(path, req.Name, how)
	if err != nil {
		return driver.Grant{}, err
	}
	return b.enter(f, req)
}

// waitAlone is Acquire for a writer that must wait. It takes the turn as soon as possible, which keeps
// new sharers out. It does not wait for the turn: it is in the kernel's queue for the lock, and a
// waiter that is stopped with the turn blocks no writer.
func (b *Backend) waitAlone(ctx context.Context, req driver.Request) (driver.Grant, error) {
	path := b.path(req.Name)
	_, leave := b.wait(waited{turnOf(path), localfile.Exclusive})
	defer leave()
	for {
		f, err := b.get(ctx, waited{path, localfile.Exclusive})
		if err != nil {
			return driver.Grant{}, err
		}
		g, err := b.enter(f, req)
		kept, ok := errors.AsType[*refusal.Error](err)
		if !ok {
			return g, err
		}
		if clock.Sleep(ctx, min(kept.Remaining, keptLook)) != nil {
			return driver.Grant{}, b.leaves(ctx)
		}
	}
}

// keptLook is how often a writer checks whether a MinHold still keeps it out: it may be taken back or
// broken.
const keptLook = 200 * time.Millisecond

// enter makes a hold of f, which is locked for the request, or unlocks it. If a MinHold keeps the lock,
// the error is a *refusal.Error. A sharer has the turn, so that it is the only one that writes; if it
// can lock the file exclusively for a moment, all earlier sharers are gone.
func (b *Backend) enter(f *os.File, req driver.Request) (g driver.Grant, err error) {
	now := time.Now()
	h := &hold{file: f, name: req.Name}
	defer func() {
		if err != nil {
			h.letGo()
			g = driver.Grant{}
		}
	}()
	alone := true
	if req.Shared {
		if err = b.count(f.Name(), req.Name, 1); err != nil {
			return g, err
		}
		h.sharers = b
		alone = localfile.Flock(f, localfile.Exclusive|localfile.NoWait) == nil
		if !alone {
			// The attempt may have cost it the shared lock.
			if err = localfile.Flock(f, localfile.Shared|localfile.NoWait); err != nil {
				return g, err
			}
		}
	}
	old, content, err := read(f, req.Name)
	if err != nil {
		return g, err // never overwrite what may hold a higher token, or is not ours
	}
	r, err := old.next(req, alone, now)
	if err != nil {
		return g, err
	}
	h.token = r.Token
	if req.MinHold > 0 {
		h.kept = now.Add(req.MinHold)
	}
	if r != old {
		err = write(f, req.Name, r, content)
	}
	if err == nil && req.Shared && alone {
		err = localfile.Flock(f, localfile.Shared|localfile.NoWait)
	}
	return driver.Grant{Hold: h, Validity: driver.Validity{Since: now}, Token: r.Token}, err
}

// A visitor has the lock for some microseconds, or until the system runs it again: an abandoned wait
// that is granted and releases, or an Inspect. If only visitors may have a lock, TryLock tries again,
// for some 25 ms in all, before it says "held".
const (
	visitorTries = 10
	visitorPause = 50 * time.Microsecond
)

// again calls try while it finds the file locked by a possible visitor.
func again[T any](ctx context.Context, try func() (T, error)) (T, error) {
	pause := visitorPause
	for tries := 1; ; tries++ {
		v, err := try()
		switch {
		case !errors.Is(err, localfile.ErrBusy):
			return v, err
		case tries == visitorTries:
			return v, driver.ErrHeld
		}
		if err := clock.Sleep(ctx, pause/2+rand.N(pause)); err != nil {
			return v, err
		}
		pause *= 2
	}
}

// tryLock locks the file. If another has locked it, it returns ErrHeld, or localfile.ErrBusy if that
// may be a visitor.
func (b *Backend) tryLock(path, name string, how localfile.How) (*os.File, error) {
	f, err := b.openLocked(path, how|localfile.NoWait)
	if errors.Is(err, localfile.ErrBusy) && !onlyVisitors(path, name, how) {
		err = driver.ErrHeld
	}
	return f, err
}

// onlyVisitors reports whether a refused lock may have no holder: the file names none or a dead one, or
// it names sharers. Sharers keep out neither a sharer (except the last one as it leaves) nor an Inspect
// of the sharers.
func onlyVisitors(path, name string, how localfile.How) bool {
	f, err := os.OpenFile(path, os.O_RDONLY|localfile.OpenFlags, 0)
	if err != nil {
		return true
	}
	defer f.Close()
	r, _, err := read(f, name)
	if err != nil || !localfile.Alive(r.Process) {
		return true
	}
	return r.Shared && (how == localfile.Shared || errors.Is(visit(f, localfile.Shared), localfile.ErrBusy))
}

// Close ends every wait with ErrClosed, and refuses later calls. Held locks stay until they are
// released. A thread whose caller gave up stays until the kernel grants it the lock. Close always
// returns nil.
func (b *Backend) Close() error {
	b.stop()
	return nil
}

func (b *Backend) path(name string) string { return filepath.Join(b.dir, fileName(name)) }

// unavailable makes an error match ErrUnavailable if its cause may be temporary.
func unavailable(err error) error {
	if !localfile.Passes(err) && !errors.Is(err, localfile.ErrReplaced) || errors.Is(err, driver.ErrUnavailable) {
		return err
	}
	return fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
}
