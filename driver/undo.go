package driver

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Undo makes [Hold.Undo] of Release, for a service that ends holds by itself when their
// TTL has passed. Its zero value is that of an attempt that has sent nothing. A Hold
// has one, and tells it of every request that may store or prolong the hold.
type Undo struct {
	mu      sync.Mutex
	sending int
	late    bool          // a request that stores the hold may be under way
	lasts   time.Duration // the longest that was asked for
	until   time.Time     // it has ended by then
}

// Sends notes, before a request is sent, for how long it asks the service to keep the hold.
func (u *Undo) Sends(d time.Duration) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.sending++
	u.lasts = max(u.lasts, d)
}

// Sent notes that the request of the last Sends, with all its copies, is not sent any more.
// late: one of them may still arrive, and store the hold.
func (u *Undo) Sent(late bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.sending--
	u.late = u.late || late
	u.until = time.Now().Add(u.lasts + Drift(u.lasts))
}

// Undo is [Hold.Undo] if release is [Hold.Release].
func (u *Undo) Undo(ctx context.Context, release func(context.Context) error) error {
	u.mu.Lock()
	quiet := u.sending == 0 // what arrives during the release may come after it
	u.mu.Unlock()
	err := release(ctx)
	u.mu.Lock()
	defer u.mu.Unlock()
	nothing := err == nil || errors.Is(err, ErrLost)
	switch {
	case u.sending == 0 && (quiet && nothing && !u.late || !time.Now().Before(u.until)):
		return nil
	case err == nil:
		return fmt.Errorf("a request of it may still arrive: %w", ErrLost)
	}
	return err
}
