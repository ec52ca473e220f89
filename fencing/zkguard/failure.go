package zkguard

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-zookeeper/zk"

	"github.com/golockers/locker"
	"github.com/golockers/locker/fencing"
)

// OpError is one of the caller's operations that could not be carried out.
// Nothing was written, and the mark did not move.
type OpError struct {
	Resource string
	Index    int // of Op among the operations that were given
	Op       any
	Err      error // the driver's: zk.ErrNoNode, zk.ErrBadVersion …
}

// Error says what failed and why, on one line.
func (e *OpError) Error() string {
	path, kind := target(e.Op)
	return fmt.Sprintf("zkguard: %q: operation %d (%s %q): %v: nothing was written", e.Resource, e.Index+1, kind, path, e.Err)
}

// Unwrap returns the driver's error.
func (e *OpError) Unwrap() error { return e.Err }

// failure says what an error means for the caller.
func (s *store) failure(ctx context.Context, resource string, err error) error {
	var own *refusal
	var unsent *unsentError
	var lost *unansweredError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &own):
		return own.err
	case !errors.As(err, &unsent) && !errors.As(err, &lost):
		// The service's own word about the guard's nodes.
		if errors.Is(err, zk.ErrNoAuth) {
			err = fmt.Errorf("%w: give the connection the right to read, write and create below %s, and set Options.ACL so that those who share the marks have it, too", err, s.opts.Prefix)
		}
		return fmt.Errorf("zkguard: %q: %w", resource, err)
	}
	where := fmt.Sprintf("zkguard: %q at %s", resource, s.server())
	var what error
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		what = fmt.Errorf("given up before the answer: %w", ctx.Err())
	case ctx.Err() != nil:
		what = fmt.Errorf("no answer in time: %w: %w", ctx.Err(), locker.ErrUnavailable)
	default:
		what = fmt.Errorf("%w: %w", err, locker.ErrUnavailable)
	}
	if errors.As(err, &unsent) {
		return fmt.Errorf("%s: %w", where, what)
	}
	return fmt.Errorf("%s: %w: %w", where, what, fencing.ErrUnknown)
}

// server is where the connection leads, for messages.
func (s *store) server() string {
	if server := s.conn.Server(); server != "" {
		return server
	}
	return "ZooKeeper (not connected yet)"
}
