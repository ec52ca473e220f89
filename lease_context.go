package locker

import "context"

// Context returns a context that ends when parent ends, when the lease ends, or when cancel is called,
// whichever is first. If the lease ended it, [context.Cause] returns the same error as Err. It ends
// before this Client lets the next holder in: as soon as Err is non-nil, the context has ended too. At
// Until, a timer ends it: if the process was paused, the context can seem alive for some microseconds
// after the lease, while Err is exact. Call cancel when the context is no longer needed; cancel does
// not unlock.
//
// [FromContext] finds the lease in this context and in contexts derived from it. While the lease is
// held, a call of the same Client for the same name with such a context would wait for itself and is
// refused with ErrInvalid.
func (l *Lease) Context(parent context.Context) (ctx context.Context, cancel context.CancelFunc) {
	outer, _ := parent.Value(insideKey{}).(*inside)
	ctx, end := context.WithCancelCause(&inside{parent, l, outer})
	l.mu.Lock()
	over := l.err
	if over == nil {
		if l.ends == nil {
			l.ends = make(map[*context.CancelCauseFunc]struct{})
		}
		l.ends[&end] = struct{}{}
	}
	l.mu.Unlock()
	if over != nil {
		end(over)
	}
	return ctx, func() {
		l.mu.Lock()
		delete(l.ends, &end)
		l.mu.Unlock()
		end(context.Canceled)
	}
}

// FromContext returns the lease on name that ctx is inside (by [Do], [DoAll] or [Lease.Context]), from
// any Client. If there are several, it returns the innermost that is held; if there is none, it returns
// false. name is that of [Lease.Name], without prefix.
//
// The values of a context outlive it ([context.WithoutCancel]), so FromContext calls [Lease.Err], which
// checks both clocks. The lease it returns may end a moment later.
func FromContext(ctx context.Context, name string) (lease *Lease, ok bool) {
	return heldIn(ctx, name, nil)
}

// FromContext is the function [FromContext] for the leases of this Client alone, for programs that hold
// the same name on two services.
func (c *Client) FromContext(ctx context.Context, name string) (lease *Lease, ok bool) {
	return heldIn(ctx, name, c)
}

// heldIn is FromContext for the leases of c, or of all Clients if c is nil.
func heldIn(ctx context.Context, name string, c *Client) (*Lease, bool) {
	for in, _ := ctx.Value(insideKey{}).(*inside); in != nil; in = in.outer {
		if in.lease.name == name && (c == nil || in.lease.client == c) && in.lease.Err() == nil {
			return in.lease, true
		}
	}
	return nil, false
}

// inside is the context of a lease.
type inside struct {
	context.Context
	lease *Lease
	outer *inside // the enclosing one; nil: none
}

type insideKey struct{}

// Value lets calls with this context, or one derived from it, find the lease.
func (in *inside) Value(key any) any {
	if key == (insideKey{}) {
		return in
	}
	return in.Context.Value(key)
}

// knowing is a Client, or a Locker around one.
type knowing interface {
	FromContext(ctx context.Context, name string) (lease *Lease, ok bool)
}

// notNested returns an error if ctx is inside a lease of k on name. If the call does not wait, the
// error also matches ErrHeld.
func notNested(ctx context.Context, k knowing, name string, wait bool) error {
	if _, held := k.FromContext(ctx, name); !held {
		return nil
	}
	err := invalid("the context is inside a lease on this name: the call would wait for itself. " +
		"Nothing is reentrant, and a shared lease cannot become exclusive: unlock it first")
	if !wait {
		err = &alsoError{err, ErrHeld}
	}
	return err
}
