// Package carried is what httpguard and grpcguard do alike with a fencing token that travels in a header: which
// token a client sends, which one a server reads, and how the server admits it.
package carried

import (
	"context"
	"fmt"

	"github.com/golockers/locker"
	"github.com/golockers/locker/fencing"
)

// Outgoing returns the token that ctx carries for the lock with this name, or for the only one if lock is "".
func Outgoing(ctx context.Context, lock string) (fencing.Token, error) {
	if lock != "" {
		return fencing.TokenFor(ctx, lock)
	}
	return fencing.FromContext(ctx)
}

// Incoming returns the token in the values of a header. The error matches [fencing.ErrMissing] if there is none, and
// [locker.ErrInvalid] if it is malformed or there is more than one.
func Incoming(header string, values []string) (fencing.Token, error) {
	switch len(values) {
	case 0:
		return 0, fmt.Errorf("%w: there is no %s", fencing.ErrMissing, header)
	case 1:
		return fencing.Parse(values[0])
	}
	return 0, fmt.Errorf("%s is there %d times: want it once: %w", header, len(values), locker.ErrInvalid)
}

// Handle calls handle, with the Guard of the server in the resource's turn, and only if the token is not lower than
// the mark. The mark then moves, whatever comes of it. Without a guard, or a resource, it only calls handle.
func Handle(ctx context.Context, guard *fencing.Guard, resource string, token fencing.Token, handle func()) error {
	if guard == nil || resource == "" {
		handle()
		return nil
	}
	return guard.Do(ctx, resource, token, func() error { handle(); return nil })
}

// Refused makes the error of a refusal that a server has sent. The texts may be malformed: then it has no numbers.
func Refused(resource, token, mark string) error {
	refused, err1 := fencing.Parse(token)
	seen, err2 := fencing.Parse(mark)
	if err1 != nil || err2 != nil {
		return fmt.Errorf("the server refused the write to %q: %w (it does not say by which mark)", resource,
			fencing.ErrStale)
	}
	return &fencing.StaleError{Resource: resource, Token: refused, Mark: seen}
}
