package etcdguard

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"

	"github.com/golockers/locker"
	"github.com/golockers/locker/fencing"
	"github.com/golockers/locker/internal/etcderr"
)

// unsentError says that a request was not sent, or that a request which can be
// repeated got no answer.
type unsentError struct{ err error }

func (e *unsentError) Error() string { return e.err.Error() }
func (e *unsentError) Unwrap() error { return e.err }

// call makes one request. If no member can be connected to, it fails at once, where
// the driver would wait.
func (g *Guard) call(ctx context.Context, request func(context.Context) error) error {
	if err := ctx.Err(); err != nil {
		return &unsentError{err}
	}
	if err := g.connected(ctx); err != nil {
		return &unsentError{err}
	}
	return request(ctx)
}

// ask makes a request that may be carried out twice, and repeats it once if the
// connection broke or the leader changed meanwhile.
func (g *Guard) ask(ctx context.Context, request func(context.Context) error) error {
	err := g.call(ctx, request)
	var unsent *unsentError
	if err != nil && ctx.Err() == nil && !errors.As(err, &unsent) && etcderr.Of(err) != etcderr.Refused {
		err = g.call(ctx, request)
	}
	if err == nil || errors.As(err, &unsent) {
		return err
	}
	return &unsentError{err}
}

// grace is how long a connection that has just failed may take to be made again.
const grace = 250 * time.Millisecond

// connected waits until there is a connection to a member, as long as one is being
// made. For a kv that is not a Client it cannot know, and returns nil.
func (g *Guard) connected(ctx context.Context) error {
	client, ok := g.kv.(interface{ ActiveConnection() *grpc.ClientConn })
	if !ok {
		return nil
	}
	conn := client.ActiveConnection()
	failed := false
	for state := conn.GetState(); state != connectivity.Ready; state = conn.GetState() {
		switch {
		case state == connectivity.Shutdown:
			return errors.New("the client is closed")
		case state == connectivity.Idle:
			conn.Connect()
		case state == connectivity.TransientFailure && !failed:
			failed = true
			// The driver's pauses grow to two minutes: a request should try now.
			conn.ResetConnectBackoff()
			limited, cancel := context.WithTimeout(ctx, grace)
			defer cancel()
			ctx = limited
		}
		if !conn.WaitForStateChange(ctx, state) {
			return errors.New("no member can be connected to")
		}
	}
	return nil
}

// failure makes the error for the caller.
func (g *Guard) failure(ctx context.Context, resource string, err error) error {
	if err == nil {
		return nil
	}
	where := fmt.Sprintf("etcdguard: %q at etcd %s", resource, g.addr())
	var e rpctypes.EtcdError
	outcome := etcderr.Of(err)
	switch {
	case errors.Is(err, rpctypes.ErrTooManyOps):
		return fmt.Errorf("%s: %w: %w: the guard needs two more than the caller's; write less at once "+
			"or raise etcd's --max-txn-ops", where, locker.ErrInvalid, err)
	case outcome == etcderr.Refused && errors.As(err, &e) && e.Code() == codes.InvalidArgument &&
		!errors.Is(err, rpctypes.ErrAuthFailed) && !errors.Is(err, rpctypes.ErrUserEmpty):
		return fmt.Errorf("%s: %w: %w", where, locker.ErrInvalid, err)
	}
	what := etcderr.Explain(where, g.keys.base+" and on what is written", err)
	switch {
	case outcome == etcderr.Refused:
		return what
	case errors.Is(ctx.Err(), context.Canceled):
		what = fmt.Errorf("%s: given up before the answer: %w", where, ctx.Err())
	case ctx.Err() != nil:
		what = fmt.Errorf("%s: no answer in time: %w: %w", where, ctx.Err(), locker.ErrUnavailable)
	}
	var unsent *unsentError
	if outcome == etcderr.NotYet || errors.As(err, &unsent) {
		return what
	}
	return fmt.Errorf("%w: %w", what, fencing.ErrUnknown)
}

// addr is the address of etcd, for messages.
func (g *Guard) addr() string {
	client, ok := g.kv.(interface{ Endpoints() []string })
	if !ok {
		return "(behind its caller's own client)"
	}
	return strings.Join(client.Endpoints(), ",")
}
