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

// held is the token of one lock in a context, with those of the contexts around it.
type held struct {
	lock  string
	token Token
	outer *held
}

// NewContext returns a context that carries token for the lock with this name, beside
// the tokens of other locks. A token of 0 hides the token that ctx carries for the
// lock.
func NewContext(ctx context.Context, lock string, token Token) context.Context {
	outer, _ := ctx.Value(contextKey{}).(*held)
	return context.WithValue(ctx, contextKey{}, &held{lock, token, outer})
}

// TokenFor returns the token that ctx carries for the lock with this name, or an
// error that matches [ErrMissing]. It also works where locks are held inside each
// other, so use it in code that does not know its callers.
func TokenFor(ctx context.Context, lock string) (Token, error) {
	all := tokens(ctx)
	for _, h := range all {
		if h.lock == lock {
			return h.token, nil
		}
	}
	return 0, fmt.Errorf("fencing: %w for the lock %q in the context, which has tokens of %s: make the context with "+
		"fencing.Do or fencing.NewContext", ErrMissing, lock, cmp.Or(names(all), "none"))
}

// FromContext returns the token that ctx carries, whatever the name of its lock. It
// is for programs that hold one lock at a time. If ctx has tokens of several locks,
// FromContext does not guess: its error names the locks and matches
// [locker.ErrInvalid]. If ctx has none, the error matches [ErrMissing].
func FromContext(ctx context.Context) (Token, error) {
	switch all := tokens(ctx); len(all) {
	case 0:
		return 0, fmt.Errorf("fencing: %w in the context: make the context with fencing.Do or "+
			"fencing.NewContext", ErrMissing)
	case 1:
		return all[0].token, nil
	default:
		return 0, fmt.Errorf("fencing: the context has tokens of several locks, %s: name one with "+
			"fencing.TokenFor: %w", names(all), locker.ErrInvalid)
	}
}

// tokens returns the tokens that ctx carries, one for each lock, the innermost first.
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

// Do is [locker.Do] with the token in fn's context: all code that fn calls finds it
// with [TokenFor] and the lock's name. If the lease has no token, Do does not call fn,
// and its error matches [ErrMissing].
//
// If a guard refuses the token although the lease still lasts, something is wrong with
// the lock service or its tokens. The error of Do then says what it may be: lost data,
// tokens that were set back, or a mark that two locks share.
func Do(
	ctx context.Context, l locker.Locker, name string, fn func(ctx context.Context) error, opts ...locker.Option,
) error {
	return locker.Do(ctx, l, name, withTokenOf(name, fn), opts...)
}

// TryDo is [locker.TryDo] with the token in fn's context, as in [Do].
func TryDo(
	ctx context.Context, l locker.Locker, name string, fn func(ctx context.Context) error, opts ...locker.Option,
) error {
	return locker.TryDo(ctx, l, name, withTokenOf(name, fn), opts...)
}

func withTokenOf(name string, fn func(ctx context.Context) error) func(context.Context, *locker.Lease) error {
	return func(ctx context.Context, lease *locker.Lease) error {
		token, err := Of(lease)
		if err != nil {
			return err
		}
		err = fn(NewContext(ctx, name, token))
		var stale *StaleError
		if !errors.As(err, &stale) || stale.Token != token || lease.Err() != nil {
			return err
		}
		err = fmt.Errorf("%w; the lease on %q still lasts, however: the lock service lost data and "+
			"gave the lock away, or its tokens were set back (a restored backup, another service), or "+
			"tokens of another lock move this mark", err, name)
		if !stale.rewound() {
			err = fmt.Errorf("%w; where tokens were set back, token_base has to be above all that were given out,"+
				" %d at least", err, stale.Mark)
		}
		return err
	}
}
