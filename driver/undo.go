package driver

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Undo implements [Hold.Undo] on top of Release, for a service that ends holds by itself when their TTL
// has passed. The zero value is for an attempt that has sent nothing. A Hold has one, and reports to it
// every request that may store or prolong the hold.
type Undo struct {
	mu      sync.Mutex
	sending int
	late    bool          // a request that stores the hold may be in flight
	lasts   time.Duration // the longest time that requests in flight ask for
	until   time.Time     // the hold has ended by then
}

// Sends records, before a request is sent, how long it asks the service to keep the hold.
func (u *Undo) Sends(d time.Duration) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.sending++
	u.lasts = max(u.lasts, d)
}

// Sent records that neither the request of a Sends nor any copy of it will be sent any more. late: one
// of them may still arrive and store the hold.
func (u *Undo) Sent(late bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.sending--
	u.late = u.late || late
	if until := time.Now().Add(u.lasts + Drift(u.lasts)); until.After(u.until) {
		u.until = until
	}
	if u.sending == 0 {
		u.lasts = 0 // the next request may ask for less, as a Release with a keep does
	}
}

// Undo is [Hold.Undo] if release is [Hold.Release].
func (u *Undo) Undo(ctx context.Context, release func(context.Context) error) error {
	u.mu.Lock()
	quiet := u.sending == 0 // a request that arrives during the release may come after it
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
