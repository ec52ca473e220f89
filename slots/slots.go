// Package slots allows at most n holders at once, and gives each a number from 0 to n-1.
//
//	err := slots.Do(ctx, l, "gpu", 4, func(ctx context.Context) error {
//		slot, held := slots.FromContext(ctx, "gpu")
//		if !held {
//			return context.Cause(ctx) // it was lost at once
//		}
//		return render(ctx, slot.Number) // 0 to 3; ctx ends if the slot is lost
//	})
//
// # What a slot is
//
// Each slot is a separate lock on any [locker.Locker], with the guarantees of its service and its own
// fencing tokens. Nothing is counted, because counts can fail: on three Redis servers with a semaphore
// of two on each, three clients can get two servers each. Tokens of one slot increase. Tokens of
// different slots cannot be compared: check them at a resource that belongs to the slot.
//
// The slots of "gpu" are the locks "gpu/0", "gpu/1" and so on. Callers that wait for one of 4 wait for
// the lock "gpu/door4", and only its holder asks for the slots. So callers are served in order if the
// service has an order ([locker.Guarantees].Order). If the holder of the door dies, those behind it
// wait until its TTL has passed; TryLock does not use the door. No two names share a lock, unless a
// program locks such a name itself.
//
// # Changing n
//
// Programs with different n may run at the same time: there are at most as many holders as the larger
// n, and once the holders of the high slots have unlocked them, those stay unused. Each n has its own
// door: order is kept among callers with the same n.
//
// # A number for each worker
//
// A slot's number can be a worker's ID, for example in IDs made of a time and a number. With TryLock
// and [locker.MinHold], the service keeps a number for that time after the grant, even if its worker
// dies at once. Lock refuses a MinHold, because it would keep slots that Lock asks for but does not
// need.
package slots

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/golockers/locker"
)

// The greatest number of slots, and the greatest length in bytes of a group's name. The names of its
// locks are longer.
const (
	MaxSlots   = 1000
	MaxNameLen = locker.MaxNameLen - len("/door1000")
)

// Slot is a lease on one of the slots.
type Slot struct {
	*locker.Lease

	// Number is from 0 to n-1. Two holders can have the same number at the same time only if two can
	// hold the same lock.
	Number int

	name string // of the group of slots
}

// insideKey is the key of the innermost slot of a name in a context.
type insideKey struct{ name string }

// inside is a slot in a context.
type inside struct {
	slot  *Slot
	outer *inside // of the same name; nil: none
}

// Context is [locker.Lease.Context], and [FromContext] finds the slot in the context.
func (s *Slot) Context(parent context.Context) (ctx context.Context, cancel context.CancelFunc) {
	ctx, cancel = s.Lease.Context(parent)
	return s.within(ctx), cancel
}

func (s *Slot) within(ctx context.Context) context.Context {
	key := insideKey{s.name}
	outer, _ := ctx.Value(key).(*inside)
	return context.WithValue(ctx, key, &inside{s, outer})
}

// FromContext returns the slot of name that ctx is inside (by [Do], [TryDo] or [Slot.Context]). If
// there are several, it returns the innermost that is held; if there is none, nil and false.
func FromContext(ctx context.Context, name string) (slot *Slot, ok bool) {
	for in, _ := ctx.Value(insideKey{name}).(*inside); in != nil; in = in.outer {
		if in.slot.Err() == nil {
			return in.slot, true
		}
	}
	return nil, false
}

// Lock waits until it holds one of the n slots of name, or until ctx ends. It takes the lowest free
// slot. Its errors are those of [locker.Locker].Lock. A slot that ctx itself holds, as within [Do],
// counts as held; if ctx holds all n, the error matches ErrInvalid. If n is more than 16, Lock may
// notice late that a high slot is free, as [LockAny] does.
//
// opts apply to the slot, and to the door while Lock waits. A MaxWait bounds the whole call. If it
// passes while the call is behind others at the door, the call has asked for no slot, though one may be
// free: the error matches ErrHeld. After a MaxHold, or a TTL with NoRenew, the door also admits the
// next caller.
func Lock(ctx context.Context, l locker.Locker, name string, n int, opts ...locker.Option) (*Slot, error) {
	names, err := namesOf(l, name, n, opts)
	if err != nil {
		return nil, err
	}
	if locker.AskedBy(opts...).MinHold != 0 {
		return nil, invalid(name, "Lock asks for slots that it does not need: MinHold is for TryLock")
	}
	if negativeWait(opts) {
		return nil, invalid(name, noNegativeWait)
	}
	w := newWait(l, opts)
	if inAll(ctx, names) { // at the door it may be behind a caller that waits for what ctx holds
		if number, lease, own, err := tryLockAny(ctx, w.try, names); err == nil || len(own) == n {
			return slotOf(name, n)(number, lease, asLock(err))
		}
	}
	if !w.over() {
		door, err := w.lock(ctx, name+"/door"+strconv.Itoa(n))
		var e *locker.Error
		if errors.As(err, &e) {
			err = &locker.Error{Op: e.Op, Name: name, Err: fmt.Errorf("others wait for a slot before this call: %w", e.Err)}
			if !errors.Is(e, locker.ErrHeld) {
				err = &locker.Error{Op: e.Op, Name: name, Err: e.Err}
			}
		}
		if err != nil {
			return nil, err
		}
		// Do not wait for this release: it continues in the background.
		defer func() {
			over, cancel := context.WithCancel(ctx)
			cancel()
			_ = door.Unlock(over)
		}()
	}
	return slotOf(name, n)(lockAny(ctx, w, names))
}

// TryLock takes the lowest free slot of the n slots of name, and does not wait: if all are held, the
// error matches [locker.ErrHeld], or ErrInvalid if ctx itself holds them all.
func TryLock(ctx context.Context, l locker.Locker, name string, n int, opts ...locker.Option) (*Slot, error) {
	names, err := namesOf(l, name, n, opts)
	if err != nil {
		return nil, err
	}
	try := func(ctx context.Context, name string) (*locker.Lease, error) { return l.TryLock(ctx, name, opts...) }
	number, lease, _, err := tryLockAny(ctx, try, names)
	return slotOf(name, n)(number, lease, err)
}

// slotOf makes a Slot from the lease on one of n names.
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
		return &Slot{Lease: lease, Number: number, name: name}, nil
	}
}

// Do calls fn while it holds one of the n slots of name; it works like [locker.Do]. In fn,
// [FromContext] returns the slot.
func Do(ctx context.Context, l locker.Locker, name string, n int, fn func(ctx context.Context) error,
	opts ...locker.Option) error {
	e := &entry{Locker: l, n: n, fn: fn}
	return locker.Do(ctx, e, name, e.do, opts...)
}

// TryDo is [Do] without waiting: if all slots are held, it does not call fn, and the error matches
// [locker.ErrHeld].
func TryDo(ctx context.Context, l locker.Locker, name string, n int, fn func(ctx context.Context) error,
	opts ...locker.Option) error {
	e := &entry{Locker: l, n: n, fn: fn}
	return locker.TryDo(ctx, e, name, e.do, opts...)
}

// entry is the Locker of one Do.
type entry struct {
	locker.Locker
	n    int
	fn   func(ctx context.Context) error
	slot *Slot
}

func (e *entry) do(ctx context.Context) error { return e.fn(e.slot.within(ctx)) }

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

// inAll reports whether ctx is inside leases on all the names, possibly leases of another Locker.
func inAll(ctx context.Context, names []string) bool {
	for _, name := range names {
		if _, held := locker.FromContext(ctx, name); !held {
			return false
		}
	}
	return true
}

func invalid(name, format string, args ...any) error {
	return &locker.Error{Op: "lock", Name: name,
		Err: fmt.Errorf("%w: %s", locker.ErrInvalid, fmt.Sprintf(format, args...))}
}

// namesOf returns the names of the slots. It refuses invalid arguments before the service is asked.
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
