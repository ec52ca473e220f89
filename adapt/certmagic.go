package adapt

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/golockers/locker"
)

// CertmagicLocker is a certmagic.Locker, TryLocker and LockLeaseRenewer. See
// [Certmagic].
type CertmagicLocker struct {
	l    locker.Locker
	opts []locker.Option

	mu sync.Mutex
	// by name, the oldest first; more than one if a lease was lost and its holder has not unlocked yet
	leases map[string][]*locker.Lease
}

// Certmagic provides the locks of a certmagic.Storage. They replace those of any Storage that is
// embedded one level deeper:
//
//	type files struct{ certmagic.Storage }
//	type storage struct {
//		files
//		*adapt.CertmagicLocker
//	}
//	certmagic.Default.Storage = storage{files{shared}, adapt.Certmagic(l)}
//
// The client renews the locks, on names such as "issue_cert_example.com", while they are held. What you
// give up: work that has begun does not stop if its lock is lost. Two processes may then request the
// same certificate, which certmagic tolerates. It does not retry under a lost lock, because
// RenewLockLease reports the loss.
func Certmagic(l locker.Locker, opts ...locker.Option) *CertmagicLocker {
	return &CertmagicLocker{l: given(l), opts: opts, leases: map[string][]*locker.Lease{}}
}

// Lock waits for the lock on name.
func (c *CertmagicLocker) Lock(ctx context.Context, name string) error {
	return c.keep(name)(c.l.Lock(ctx, name, c.opts...))
}

// TryLock reports whether it has locked name; it does not wait for another holder.
func (c *CertmagicLocker) TryLock(ctx context.Context, name string) (bool, error) {
	err := c.keep(name)(c.l.TryLock(ctx, name, c.opts...))
	if errors.Is(err, locker.ErrHeld) {
		return false, nil
	}
	return err == nil, err
}

func (c *CertmagicLocker) keep(name string) func(*locker.Lease, error) error {
	return func(lease *locker.Lease, err error) error {
		if err == nil {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.leases[name] = append(c.leases[name], lease)
		}
		return err
	}
}

// Unlock releases the lock on name. A lost lock is no error: there is nothing to release.
func (c *CertmagicLocker) Unlock(ctx context.Context, name string) error {
	c.mu.Lock()
	leases := c.leases[name]
	if len(leases) > 1 {
		c.leases[name] = leases[1:] // whichever holder unlocks first, the held lease stays until the last one does
	} else {
		delete(c.leases, name)
	}
	c.mu.Unlock()
	if len(leases) == 0 {
		return notLocked(name)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), unlockTimeout)
	defer cancel()
	if err := leases[0].Unlock(ctx); !errors.Is(err, locker.ErrLost) {
		return err
	}
	return nil
}

// RenewLockLease returns nil while the lock on name is held, and an error once it is lost. It ignores
// the duration and does not renew the lock; the client does.
func (c *CertmagicLocker) RenewLockLease(_ context.Context, name string, _ time.Duration) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	leases := c.leases[name]
	if len(leases) == 0 {
		return notLocked(name)
	}
	return leases[len(leases)-1].Err()
}

func notLocked(name string) error {
	return fmt.Errorf("adapt: %w: %q is not locked here", locker.ErrInvalid, name)
}
