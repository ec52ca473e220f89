package adapt

import (
	"context"
	"errors"
	"time"

	"github.com/golockers/locker"
)

// CertmagicLocker is a certmagic.Locker, TryLocker and LockLeaseRenewer. See
// [Certmagic].
type CertmagicLocker struct{ held held }

// Certmagic makes the locks of a certmagic.Storage. They take the place of those of
// any Storage, as they are less deep in a struct:
//
//	type files struct{ certmagic.Storage }
//	type storage struct {
//		files
//		*adapt.CertmagicLocker
//	}
//	certmagic.Default.Storage = storage{files{shared}, adapt.Certmagic(l)}
//
// The locks on names such as "issue_cert_example.com" are renewed by the client for as
// long as they are held. What is lost: work that has begun does not stop if a lock is
// lost. Two may then ask for the same certificate, which certmagic bears; it does not
// try again with a lock that was lost, since RenewLockLease says so.
func Certmagic(l locker.Locker, opts ...locker.Option) *CertmagicLocker {
	return &CertmagicLocker{held{l: l, opts: opts}}
}

// Lock waits for the lock on name.
func (c *CertmagicLocker) Lock(ctx context.Context, name string) error {
	return c.held.lock(ctx, c.held.l.Lock, name)
}

// TryLock reports whether it has locked name; it does not wait for another holder.
func (c *CertmagicLocker) TryLock(ctx context.Context, name string) (bool, error) {
	err := c.held.lock(ctx, c.held.l.TryLock, name)
	if errors.Is(err, locker.ErrHeld) {
		return false, nil
	}
	return err == nil, err
}

// Unlock releases the lock on name. It is no error if the lock was lost: then there is
// nothing to release.
func (c *CertmagicLocker) Unlock(ctx context.Context, name string) error {
	if err := c.held.unlock(ctx, name); !errors.Is(err, locker.ErrLost) {
		return err
	}
	return nil
}

// RenewLockLease returns nil while the lock on name is held, whatever the duration, and
// an error when it is lost. It does not renew it: the client does.
func (c *CertmagicLocker) RenewLockLease(_ context.Context, name string, _ time.Duration) error {
	return c.held.err(name)
}
