package zkguard

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-zookeeper/zk"

	"github.com/golockers/locker"
	"github.com/golockers/locker/fencing"
)

// OpError says which of the caller's operations failed. Nothing was written, and the
// mark did not move.
type OpError struct {
	Resource string
	Index    int // of Op among the caller's operations, from 0
	Op       any
	Err      error // the driver's: zk.ErrNoNode, zk.ErrBadVersion …
}

// Error says what failed and why, on one line.
func (e *OpError) Error() string {
	path, kind, _ := parts(e.Op)
	return fmt.Sprintf("zkguard: %q: operation %d (%s %q): %v: nothing was written",
		e.Resource, e.Index+1, kind, path, e.Err)
}

// Unwrap returns the driver's error.
func (e *OpError) Unwrap() error { return e.Err }

// failure makes the error for the caller.
func (g *Guard) failure(ctx context.Context, resource string, err error) error {
	var lost *unansweredError
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &lost): // ZooKeeper's answer about the guard's own nodes
		if errors.Is(err, zk.ErrNoAuth) {
			err = fmt.Errorf("%w: give the connection the right to read, write and create below %s, "+
				"and set Options.ACL so that all who share the marks have these rights", err, g.opts.Prefix)
		}
		return fmt.Errorf("zkguard: %q: %w", resource, err)
	case errors.Is(ctx.Err(), context.Canceled):
		err = fmt.Errorf("given up before the answer: %w", ctx.Err())
	case ctx.Err() != nil:
		err = fmt.Errorf("no answer in time: %w: %w", ctx.Err(), locker.ErrUnavailable)
	default:
		err = fmt.Errorf("%w: %w", err, locker.ErrUnavailable)
	}
	server := g.conn.Server()
	if server == "" {
		server = "ZooKeeper (not connected yet)"
	}
	err = fmt.Errorf("zkguard: %q at %s: %w", resource, server, err)
	if lost.unknown {
		return fmt.Errorf("%w: %w", err, fencing.ErrUnknown)
	}
	return err
}
