package adapt

import (
	"context"
	"database/sql"
	"time"

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

// MigrateLock has the methods Lock and Unlock of a database driver of golang-migrate
// v4. See [Migrate].
type MigrateLock struct {
	held held
	ctx  context.Context
	name string
	wait time.Duration
}

// Migrate makes the two methods of a golang-migrate driver that lock. They take the
// place of those of any driver, as they are less deep in a struct:
//
//	type unlocked struct{ database.Driver }
//	type driver struct {
//		unlocked
//		*adapt.MigrateLock
//	}
//	d := driver{unlocked{d}, adapt.Migrate(ctx, l, "migrations", 10*time.Second)}
//	m, err := migrate.NewWithDatabaseInstance("file://migrations", "database", d)
//
// Lock waits until ctx ends, and for the time wait at most. wait has to be less than
// Migrate.LockTimeout (15 s if it was not set): a lock that came after it would be
// held for as long as the process lives. What is lost: migrations do not stop if the
// lock is lost; Up then returns an error that matches locker.ErrLost at the end. Use
// locker.Do and GracefulStop instead, if you can; see the package's third example.
func Migrate(ctx context.Context, l locker.Locker, name string, wait time.Duration,
	opts ...locker.Option) *MigrateLock {
	return &MigrateLock{held: held{l: l, opts: opts}, ctx: ctx, name: name, wait: wait}
}

// Lock waits for the lock.
func (m *MigrateLock) Lock() error {
	ctx, cancel := context.WithTimeout(m.ctx, m.wait)
	defer cancel()
	return m.held.lock(ctx, m.held.l.Lock, m.name)
}

// Unlock unlocks. Its error matches locker.ErrLost if the lock was lost.
func (m *MigrateLock) Unlock() error {
	return m.held.unlock(m.ctx, m.name)
}
