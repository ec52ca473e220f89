package adapt

import (
	"context"
	"database/sql"

	"github.com/golockers/locker"
)

// GooseLocker is a lock.Locker and a lock.SessionLocker of goose v3. See [Goose].
type GooseLocker struct {
	held held
	name string
}

// Goose makes a Locker for goose v3, which locks name while migrations run: for
// databases without locks, or for several that migrate together.
//
//	goose.NewProvider(dialect, db, files, goose.WithLocker(adapt.Goose(l, "migrations")))
//
// It waits until the context given to the provider ends. What is lost: migrations do
// not stop if the lock is lost. The provider then returns an error that matches
// locker.ErrLost at the end. Use locker.Do around the provider instead, if you can.
func Goose(l locker.Locker, name string, opts ...locker.Option) *GooseLocker {
	return &GooseLocker{held{l: l, opts: opts}, name}
}

// Lock waits for the lock.
func (g *GooseLocker) Lock(ctx context.Context, _ *sql.DB) error {
	return g.held.lock(ctx, g.held.l.Lock, g.name)
}

// Unlock unlocks. Its error matches locker.ErrLost if the lock was lost.
func (g *GooseLocker) Unlock(ctx context.Context, _ *sql.DB) error {
	return g.held.unlock(ctx, g.name)
}

// SessionLock is Lock; nothing is locked in the session.
func (g *GooseLocker) SessionLock(ctx context.Context, _ *sql.Conn) error { return g.Lock(ctx, nil) }

// SessionUnlock is Unlock.
func (g *GooseLocker) SessionUnlock(ctx context.Context, _ *sql.Conn) error {
	return g.Unlock(ctx, nil)
}
