package fencing

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/golockers/locker"
)

type contextKey struct{}

// held is the token of one lock in a context, linked to those of the enclosing contexts.
type held struct {
	lock   string
	token  Token
	outer  *held
	around context.Context // its parent
}

// NewContext returns a context that carries token for the lock with this name, in addition to the
// tokens of other locks. A token of 0 hides the token that ctx carries for the lock.
func NewContext(ctx context.Context, lock string, token Token) context.Context {
	outer, _ := ctx.Value(contextKey{}).(*held)
	return context.WithValue(ctx, contextKey{}, &held{lock, token, outer, ctx})
}

// TokenFor returns the token for the lock with this name: the one that ctx carries ([Do], [NewContext])
// or, if a lease on the lock has been taken inside that ([locker.FromContext]) and is held, the token
// of that lease. If there is none, the error matches [ErrMissing]. After a loss, the context of [Do]
// still carries its token, so that a guard can refuse it; the lease of [locker.Do] is no longer found.
// TokenFor also works with nested locks, each with a token of its own, so use it in code that does not
// know its callers.
func TokenFor(ctx context.Context, lock string) (Token, error) {
	h, _ := ctx.Value(contextKey{}).(*held)
	for h != nil && h.lock != lock {
		h = h.outer
	}
	lease, ok := locker.FromContext(ctx, lock)
	if ok && h != nil {
		before, _ := locker.FromContext(h.around, lock)
		ok = lease != before // else the token is that lease's, or newer than it
	}
	switch {
	case ok:
		return Of(lease)
	case h == nil || h.token == 0:
		return 0, missing(ctx, lock)
	}
	return h.token, nil
}

func missing(ctx context.Context, lock string) error {
	return fmt.Errorf("fencing: %w for the lock %q: the context is inside no held lease on it, and has tokens "+
		"of %s: make it with locker.Do, fencing.Do or fencing.NewContext", ErrMissing, lock,
		cmp.Or(names(tokens(ctx)), "none"))
}

// FromContext returns the token that ctx carries ([Do], [NewContext]), whatever its lock's name. It is
// for programs that hold one lock at a time. If ctx has tokens of several locks, the error names the
// locks and matches [locker.ErrInvalid]. If ctx has none, the error matches [ErrMissing]. It does not
// find the lease of a [locker.Do]; [TokenFor] does, by name.
func FromContext(ctx context.Context) (Token, error) {
	switch all := tokens(ctx); len(all) {
	case 0:
		return 0, fmt.Errorf("fencing: %w in the context: make the context with fencing.Do or "+
			"fencing.NewContext, or name the lock with fencing.TokenFor", ErrMissing)
	case 1:
		return all[0].token, nil
	default:
		return 0, fmt.Errorf("fencing: the context has tokens of several locks, %s: name one with "+
			"fencing.TokenFor: %w", names(all), locker.ErrInvalid)
	}
}

// tokens returns the tokens that ctx carries, one per lock, the innermost first.
func tokens(ctx context.Context) (all []*held) {
	seen := map[string]bool{}
	for h, _ := ctx.Value(contextKey{}).(*held); h != nil; h = h.outer {
		if !seen[h.lock] && h.token != 0 {
			all = append(all, h)
		}
		seen[h.lock] = true
	}
	return all
}

func names(all []*held) string {
	var quoted []string
	for _, h := range all {
		quoted = append(quoted, fmt.Sprintf("%q", h.lock))
	}
	return strings.Join(quoted, ", ")
}

// Do is [locker.Do] with the token in fn's context: all code that fn calls finds it with [TokenFor] and
// the lock's name, even after the lock is lost, so that a guard can refuse it. If the lease has no
// token, Do does not call fn, and its error matches [ErrMissing].
//
// If a guard refuses the token although the lease is still held, something is wrong with the lock
// service or its tokens. The error of Do then lists the possible causes: lost data, tokens that were
// set back, or a mark that two locks share.
func Do(
	ctx context.Context, l locker.Locker, name string, fn func(ctx context.Context) error, opts ...locker.Option,
) error {
	k := &keeping{Locker: orNone(l), name: name, fn: fn}
	return locker.Do(ctx, k, name, k.do, opts...)
}

// TryDo is [locker.TryDo] with the token in fn's context, as in [Do].
func TryDo(
	ctx context.Context, l locker.Locker, name string, fn func(ctx context.Context) error, opts ...locker.Option,
) error {
	k := &keeping{Locker: orNone(l), name: name, fn: fn}
	return locker.TryDo(ctx, k, name, k.do, opts...)
}

// orNone returns l or, if l is nil, a Locker whose errors say so.
func orNone(l locker.Locker) locker.Locker {
	if l == nil {
		return (*locker.Client)(nil)
	}
	return l
}

// keeping is the Locker of one Do, which records its lease: a Locker's lease may have another name.
type keeping struct {
	locker.Locker
	name  string
	fn    func(ctx context.Context) error
	lease *locker.Lease
}

func (k *keeping) Lock(ctx context.Context, name string, opts ...locker.Option) (lease *locker.Lease, err error) {
	k.lease, err = k.Locker.Lock(ctx, name, opts...)
	return k.lease, err
}

func (k *keeping) TryLock(ctx context.Context, name string, opts ...locker.Option) (lease *locker.Lease, err error) {
	k.lease, err = k.Locker.TryLock(ctx, name, opts...)
	return k.lease, err
}

// do runs under the lock.
func (k *keeping) do(ctx context.Context) error {
	token, err := Of(k.lease)
	if err != nil {
		_ = k.lease.GiveBack(ctx) // MinHold must not keep an unused lock
		return err
	}
	err = k.fn(NewContext(ctx, k.name, token))
	var stale *StaleError
	if !errors.As(err, &stale) || stale.Token != token || k.lease.Err() != nil {
		return err
	}
	err = fmt.Errorf("%w; the lease on %q is still held, however: the lock service lost data and "+
		"gave the lock away, or its tokens were set back (a restored backup, another service), or "+
		"tokens of another lock move this mark", err, k.name)
	if !stale.rewound() {
		err = fmt.Errorf("%w; where tokens were set back, token_base must be above all tokens granted so far,"+
			" %d at least", err, stale.Mark)
	}
	return err
}
