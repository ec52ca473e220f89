// Package slots lets at most n work at once, and tells each which one of the n it is.
//
//	err := slots.Do(ctx, l, "gpu", 4, func(ctx context.Context, slot *slots.Slot) error {
//		return render(ctx, slot.Number) // 0 to 3; ctx ends if the slot is lost
//	})
//
// # What a slot is
//
// Each slot is a lock of its own on any [locker.Locker], with what its service
// guarantees and a fencing token of its own. Nothing is counted, so that it is right
// where counts are not: on three Redis servers with a semaphore of two on each, three
// clients can get two servers each. Tokens of one slot rise. Tokens of different slots
// do not order each other: check them at a resource of the slot's own.
//
// The slots of "gpu" are the locks "gpu/0", "gpu/1" and so on. Those who wait for one
// of 4 wait for the lock "gpu/door4", and only its holder asks for the slots. So they
// are served in order if the service has an order ([locker.Guarantees].Order). If the
// one at the door dies, those behind it wait until its TTL is over; TryLock does not
// look at the door. No two names share a lock, unless a program locks such a name
// itself.
//
// # Changing n
//
// Programs with different n may run at the same time: at most the larger of the two
// numbers hold, and the high slots are used by nobody once their holders have unlocked
// them. Each n has a door of its own: order is kept among callers with the same n.
//
// # A number for each worker
//
// A slot's number can be a worker's ID, for example in IDs that are made of a time and
// a number. With TryLock and [locker.MinHold] the service keeps a number for so long,
// counted from the grant, even if its worker dies at once. Lock refuses a MinHold,
// which would keep slots that it asks for and does not need.
package slots

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/golockers/locker"
)

// The greatest number of slots, and the greatest length of the name of a group of them
// in bytes: the names of its locks are longer.
const (
	MaxSlots   = 1000
	MaxNameLen = locker.MaxNameLen - len("/door1000")
)

// Slot is a lease on one of the slots.
type Slot struct {
	*locker.Lease

	// Number is from 0 to n-1. Two holders have the same number at the same time only
	// if two could hold the same lock.
	Number int
}

// Lock waits until it holds one of the n slots of name, or until ctx ends. It takes
// the lowest one that is free. Its errors are those of [locker.Locker].Lock. A slot that ctx itself holds,
// as within [Do], counts as held; if ctx holds all n, the error matches ErrInvalid. If n is more than
// 16, Lock may notice late that a high slot is free, as [LockAny] does.
//
// opts apply to the slot, and to the door while Lock waits: after a MaxHold, or a TTL
// with NoRenew, the next caller may come to the door, too.
func Lock(ctx context.Context, l locker.Locker, name string, n int, opts ...locker.Option) (*Slot, error) {
	names, err := namesOf(l, name, n, opts)
	if err != nil {
		return nil, err
	}
	if locker.AskedBy(opts...).MinHold != 0 {
		return nil, invalid(name, "Lock asks for slots that it does not need: MinHold is for TryLock")
	}
	door, err := l.Lock(ctx, name+"/door"+strconv.Itoa(n), opts...)
	if err != nil {
		return nil, err
	}
	// Nobody waits for this release: it goes on in the background.
	defer func() {
		over, cancel := context.WithCancel(ctx)
		cancel()
		_ = door.Unlock(over)
	}()
	return slotOf(name, n)(lockAny(ctx, l, names, opts))
}

// TryLock takes the lowest one of the n slots of name that is free, and does not wait:
// if all are held, the error matches [locker.ErrHeld], or ErrInvalid if ctx holds them all itself.
func TryLock(ctx context.Context, l locker.Locker, name string, n int, opts ...locker.Option) (*Slot, error) {
	names, err := namesOf(l, name, n, opts)
	if err != nil {
		return nil, err
	}
	number, lease, _, err := tryLockAny(ctx, l, names, opts)
	return slotOf(name, n)(number, lease, err)
}

// slotOf makes a Slot of the lease on one of n names.
func slotOf(name string, n int) func(number int, lease *locker.Lease, err error) (*Slot, error) {
	return func(number int, lease *locker.Lease, err error) (*Slot, error) {
		if e := (*locker.Error)(nil); errors.Is(err, locker.ErrHeld) && errors.As(err, &e) {
			err = fmt.Errorf("none of %d slots is free: %w", n, e.Err)
			err = &locker.Error{Op: e.Op, Name: name, Err: err}
		}
		if isOwn(err) {
			err = invalid(name, "the context holds all of the %d slots itself: unlock one first", n)
		}
		if err != nil {
			return nil, err
		}
		return &Slot{Lease: lease, Number: number}, nil
	}
}

// Do calls fn while it holds one of the n slots of name, as [locker.Do] does.
func Do(ctx context.Context, l locker.Locker, name string, n int,
	fn func(ctx context.Context, slot *Slot) error, opts ...locker.Option) error {
	e := &entry{Locker: l, n: n, fn: fn}
	return locker.Do(ctx, e, name, e.do, opts...)
}

// TryDo is [Do] without a wait: if all slots are held, it does not call fn, and the
// error matches [locker.ErrHeld].
func TryDo(ctx context.Context, l locker.Locker, name string, n int,
	fn func(ctx context.Context, slot *Slot) error, opts ...locker.Option) error {
	e := &entry{Locker: l, n: n, fn: fn}
	return locker.TryDo(ctx, e, name, e.do, opts...)
}

// entry is the Locker of one Do.
type entry struct {
	locker.Locker
	n    int
	fn   func(ctx context.Context, slot *Slot) error
	slot *Slot
}

func (e *entry) do(ctx context.Context, _ *locker.Lease) error { return e.fn(ctx, e.slot) }

func (e *entry) Lock(ctx context.Context, name string, opts ...locker.Option) (*locker.Lease, error) {
	return e.keep(Lock(ctx, e.Locker, name, e.n, opts...))
}

func (e *entry) TryLock(ctx context.Context, name string, opts ...locker.Option) (*locker.Lease, error) {
	return e.keep(TryLock(ctx, e.Locker, name, e.n, opts...))
}

func (e *entry) keep(slot *Slot, err error) (*locker.Lease, error) {
	if err != nil {
		return nil, err
	}
	e.slot = slot
	return slot.Lease, nil
}

func invalid(name, format string, args ...any) error {
	return &locker.Error{Op: "lock", Name: name,
		Err: fmt.Errorf("%w: %s", locker.ErrInvalid, fmt.Sprintf(format, args...))}
}

// namesOf returns the names of the slots. What cannot work is refused here, before the
// service is asked.
func namesOf(l locker.Locker, name string, n int, opts []locker.Option) ([]string, error) {
	switch {
	case l == nil:
		return nil, invalid(name, "the Locker is nil")
	case n < 1 || n > MaxSlots:
		return nil, invalid(name, "%d slots are not possible: give 1 to %d", n, MaxSlots)
	case name == "":
		return nil, invalid(name, "the name is empty")
	case len(name) > MaxNameLen:
		return nil, invalid(name, "the name has %d bytes: the limit for slots is %d", len(name), MaxNameLen)
	case locker.AskedBy(opts...).Shared:
		return nil, invalid(name, "a slot has one holder: leave Shared out")
	}
	names := make([]string, n)
	for i := range names {
		names[i] = name + "/" + strconv.Itoa(i)
	}
	return names, nil
}
