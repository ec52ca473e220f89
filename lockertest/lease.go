package lockertest

import (
	"context"
	"fmt"
	"time"

	"github.com/golockers/locker"
	"github.com/golockers/locker/driver"
)

// NewLease returns a lease on name that g grants, and a function that makes it lost; the holder learns
// of that as of any loss. The lease excludes nobody; that is up to the caller. It is renewed with
// g.Hold, and ends when g.Validity does. g.Hold may be nil: then nothing is renewed or released. opts
// are those of Lock, but MinHold is not possible. lose may be called at any time; with an error, it
// does nothing.
func NewLease(name string, g driver.Grant, opts ...locker.Option) (lease *locker.Lease, lose func(), err error) {
	if err := g.Check(); err != nil {
		return nil, func() {}, &locker.Error{Op: "lock", Name: name, Err: fmt.Errorf("%w: %w", locker.ErrInvalid, err)}
	}
	o := &ownGrant{Grant: g, lost: func() {}}
	if g.Hold == nil {
		o.Hold = noHold{g.Validity}
	}
	client, err := locker.New(o, nil)
	if err == nil {
		lease, err = client.TryLock(context.Background(), name, opts...)
	}
	return lease, o.lost, err
}

// ownGrant is the backend of one lease. Its Client needs no Close, because it has nothing but the
// lease.
type ownGrant struct {
	driver.Grant
	lost func()
}

func (o *ownGrant) Guarantees() driver.Guarantees {
	return driver.Guarantees{Backend: "own", Shared: driver.SharingWithTokens}
}
func (o *ownGrant) Close() error { return nil }

func (o *ownGrant) Acquire(_ context.Context, req driver.Request) (driver.Grant, error) {
	o.lost = req.Lost
	return o.Grant, nil
}

type noHold struct{ driver.Validity }

func (h noHold) Renew(context.Context) (driver.Validity, error) { return h.Validity, nil }
func (noHold) Release(context.Context, time.Duration) error     { return nil }
func (noHold) Undo(context.Context) error                       { return nil }
