package fencing

import (
	"context"
	"errors"
	"fmt"

	"github.com/golockers/locker"
)

type contextKey struct{}

// NewContext returns a context that carries token. A token of 0 hides one
// that ctx carries.
func NewContext(ctx context.Context, token Token) context.Context {
	return context.WithValue(ctx, contextKey{}, token)
}

// FromContext returns the token that ctx carries, or an error that matches
// [ErrMissing].
func FromContext(ctx context.Context) (Token, error) {
	token, _ := ctx.Value(contextKey{}).(Token)
	if token == 0 {
		return 0, fmt.Errorf("fencing: %w in the context: make it with fencing.Do or fencing.NewContext", ErrMissing)
	}
	return token, nil
}

// Do is [locker.Do] with the token in fn's context, so that whatever fn calls
// finds it by [FromContext]. If the lease has no token, fn is not called and
// the error matches [ErrMissing].
//
// If a guard refuses the token although the lease still lasts, something is
// wrong with the lock service or its tokens, and Do's error says what it can
// be: lost data, tokens that were set back, or a mark that two locks share.
func Do(ctx context.Context, l locker.Locker, name string, fn func(ctx context.Context) error, opts ...locker.Option) error {
	return locker.Do(ctx, l, name, func(ctx context.Context, lease *locker.Lease) error {
		token, err := Of(lease)
		if err != nil {
			return err
		}
		err = fn(NewContext(ctx, token))
		var stale *StaleError
		if errors.As(err, &stale) && stale.Token == token && lease.Err() == nil {
			err = fmt.Errorf("%w; the lease on %q still lasts all the same: the lock service lost data and gave the lock away, or its tokens were"+
				" set back (a restored backup, another service), or tokens of another lock move this mark", err, name)
			if !stale.rewound() {
				err = fmt.Errorf("%w; where tokens were set back, token_base has to be above all that were given out, %d at least", err, stale.Mark)
			}
		}
		return err
	}, opts...)
}
