// Package adapt lets libraries with their own lock interfaces use a [locker.Locker]: [Gocron],
// [Certmagic], and [Sync] for a sync.Locker. It imports none of these libraries. Each adapter is tested
// with the library itself, in processes that are killed; so are the recipes for goose and
// golang-migrate below.
//
// # First check whether you need it
//
// These libraries lock, work and unlock, and their work does not learn of a lost lock. If the work is
// your own function, or the library takes a context, hold the lock around it: the context ends with the
// lock. That is all that a cron library needs, and more than an adapter can do:
//
//	job := func(ctx context.Context) error { // for gocron.NewTask; cron.AddFunc is alike
//		err := locker.TryDo(ctx, l, "report", report, locker.MinHold(55*time.Minute))
//		if errors.Is(err, locker.ErrHeld) {
//			return nil // another machine does it, or has done it
//		}
//		return err
//	}
//
//	err := locker.Do(ctx, l, "migrations", func(ctx context.Context) error {
//		_, err := provider.Up(ctx) // goose
//		return err
//	})
//
//	err := locker.Do(ctx, l, "migrations", func(ctx context.Context) error {
//		stop := context.AfterFunc(ctx, func() { m.GracefulStop <- true }) // before the next migration
//		defer stop()
//		return m.Up() // golang-migrate
//	})
//
// Each adapter's documentation says what you give up with it. The client's Options.Logger and Trace
// always report a lost lease.
package adapt

import (
	"time"

	"github.com/golockers/locker"
)

// unlockTimeout bounds an unlock, because the libraries pass contexts that never end. After it, the
// release continues in the background.
const unlockTimeout = 5 * time.Second

// given returns l or, if l is nil, a Locker whose errors say so.
func given(l locker.Locker) locker.Locker {
	if l == nil {
		return (*locker.Client)(nil)
	}
	return l
}
