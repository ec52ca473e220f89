package locker

import (
	"context"

	"github.com/golockers/locker/driver"
)

// NewLease returns a lease on name that g grants, and a function that takes it away from its
// holder, who learns of it as of any loss: for tests of what a program does with a lease, and
// for a [Locker] that is no [Client]. It keeps nobody out, which is up to the caller. The
// engine renews the lease with g.Hold, and ends it when g.Validity does. g.Hold may be nil:
// then nothing is renewed or released. opts are those of Lock; MinHold needs a [driver.Backend]. lose may be
// called at any time, and does nothing beside an error.
func NewLease(name string, g driver.Grant, opts ...Option) (lease *Lease, lose func(), err error) {
	if err := g.Check(); err != nil {
		return nil, ignore, &Error{Op: "lock", Name: name, Err: invalid("%w", err)}
	}
	o := &ownGrant{Grant: g, lost: ignore}
	if g.Hold == nil {
		o.Hold = noHold{g.Validity}
	}
	lease, err = New(o, nil).TryLock(context.Background(), name, opts...)
	return lease, o.lost, err
}

// ownGrant is the backend of one lease. Its Client needs no Close: it has nothing but the lease.
type ownGrant struct {
	driver.Grant
	lost func()
}

func (o *ownGrant) Guarantees() Guarantees {
	return Guarantees{Backend: "own", Shared: SharingWithTokens}
}
func (o *ownGrant) Close() error { return nil }

func (o *ownGrant) Acquire(_ context.Context, req driver.Request) (driver.Grant, error) {
	o.lost = req.Lost
	return o.Grant, nil
}

type noHold struct{ driver.Validity }

func (h noHold) Renew(context.Context) (driver.Validity, error) { return h.Validity, nil }
func (noHold) Release(context.Context) error                    { return nil }
func (noHold) Undo(context.Context) error                       { return nil }
