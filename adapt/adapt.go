// Package adapt gives a [locker.Locker] to libraries that ask for a lock of a kind of
// their own: [Gocron], [Goose], [Certmagic], and [Sync] for a sync.Locker. It imports none of
// them. Each is tested with the library itself, whose processes are killed.
//
// # First look whether you need it
//
// These libraries lock, work and unlock, and their work is not told when the lock is
// lost. Where your own function does the work, or you give the library a context, hold
// the lock around it: its context ends with the lock. That is all that a cron library
// needs, and more than an adapter can do:
//
//	job := func(ctx context.Context) error { // for gocron.NewTask; cron.AddFunc is alike
//		err := locker.TryDo(ctx, l, "report", report, locker.MinHold(55*time.Minute))
//		if errors.Is(err, locker.ErrHeld) {
//			return nil // another machine does it, or has done it
//		}
//		return err
//	}
//
//	err := locker.Do(ctx, l, "migrations", func(ctx context.Context, _ *locker.Lease) error {
//		_, err := provider.Up(ctx) // goose
//		return err
//	})
//
//	err := locker.Do(ctx, l, "migrations", func(ctx context.Context, _ *locker.Lease) error {
//		stop := context.AfterFunc(ctx, func() { m.GracefulStop <- true }) // before the next migration
//		defer stop()
//		return m.Up() // golang-migrate
//	})
//
// With an adapter, what is lost is said at each one. A lease that was lost is always
// told to the client's Options.Logger and Trace.
package adapt

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/golockers/locker"
)

// held has the leases of one adapter, by name: the libraries unlock by name.
type held struct {
	l    locker.Locker
	opts []locker.Option

	mu     sync.Mutex
	leases map[string][]*locker.Lease
}

type lockFunc func(ctx context.Context, name string, opts ...locker.Option) (*locker.Lease, error)

func (h *held) lock(ctx context.Context, lock lockFunc, name string) error {
	lease, err := lock(ctx, name, h.opts...)
	if err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.leases == nil {
		h.leases = map[string][]*locker.Lease{}
	}
	h.leases[name] = append(h.leases[name], lease)
	return nil
}

// unlock unlocks the oldest lease on name. There is more than one if the first is
// lost and its holder does not know: whoever of the holders unlocks first, the one
// that is held stays until the last has.
func (h *held) unlock(ctx context.Context, name string) error {
	h.mu.Lock()
	leases := h.leases[name]
	if len(leases) > 1 {
		h.leases[name] = leases[1:]
	} else {
		delete(h.leases, name)
	}
	h.mu.Unlock()
	if len(leases) == 0 {
		return fmt.Errorf("adapt: %w: %q is not locked here", locker.ErrInvalid, name)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), unlockTimeout)
	defer cancel()
	return leases[0].Unlock(ctx)
}

// err is why the newest lease on name is over; nil: it is held.
func (h *held) err(name string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	leases := h.leases[name]
	if len(leases) == 0 {
		return fmt.Errorf("adapt: %w: %q is not locked here", locker.ErrInvalid, name)
	}
	return leases[len(leases)-1].Err()
}

// unlockTimeout bounds an unlock: the libraries give contexts without an end. What is
// not released by then is released in the background.
const unlockTimeout = 5 * time.Second
