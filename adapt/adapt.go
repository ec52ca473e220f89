// Package adapt gives a [locker.Locker] to libraries that ask for a lock of a kind of
// their own: [Gocron], [Certmagic], and [Sync] for a sync.Locker. It imports none of
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
	"time"

	"github.com/golockers/locker"
)

// unlockTimeout bounds an unlock: the libraries give contexts without an end. What is
// not released by then is released in the background.
const unlockTimeout = 5 * time.Second

// given is l or, if that is nil, a Locker whose errors say so.
func given(l locker.Locker) locker.Locker {
	if l == nil {
		return locker.New(nil, nil)
	}
	return l
}
