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
)

// unsentError is why a request was not sent, or one that can be repeated got no
// answer.
type unsentError struct{ err error }

func (e *unsentError) Error() string { return e.err.Error() }
func (e *unsentError) Unwrap() error { return e.err }

// refusal is the guard's own word, which is passed on as it is.
type refusal struct{ err error }

func (e *refusal) Error() string { return e.err.Error() }

// call makes one request. It fails at once where the driver would wait: when no
// member can be connected to.
func (s *store) call(ctx context.Context, request func(context.Context) error) error {
	if err := ctx.Err(); err != nil {
		return &unsentError{err}
	}
	if err := s.connected(ctx); err != nil {
		return &unsentError{err}
	}
	return request(ctx)
}

// ask makes a request that may be carried out twice, and makes it again if a
// connection broke or a leader changed under it.
func (s *store) ask(ctx context.Context, request func(context.Context) error) error {
	err := s.call(ctx, request)
	var unsent *unsentError
	if err != nil && ctx.Err() == nil && !errors.As(err, &unsent) && !refused(err) {
		err = s.call(ctx, request)
	}
	if err == nil || errors.As(err, &unsent) {
		return err
	}
	return &unsentError{err}
}

// grace is what a connection that has just failed gets to be made again.
const grace = 250 * time.Millisecond

// connected returns nil if there is a connection to a member, and waits for one
// that is being made. It cannot know of a kv that is not a Client.
func (s *store) connected(ctx context.Context) error {
	client, ok := s.kv.(interface{ ActiveConnection() *grpc.ClientConn })
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
			// The driver's pauses grow to two minutes: a request is a reason to try now.
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

// refused reports whether err is etcd's word that it has not carried out the
// request, and that trying again does not help.
func refused(err error) bool {
	var e rpctypes.EtcdError
	if !errors.As(err, &e) {
		return false
	}
	switch e.Code() {
	case codes.InvalidArgument, codes.NotFound, codes.PermissionDenied, codes.Unauthenticated, codes.FailedPrecondition, codes.OutOfRange:
		// The driver logs in again where that mends it.
		return true
	}
	return false
}

// failure says what an error means for the caller.
func (s *store) failure(ctx context.Context, resource string, err error) error {
	var own *refusal
	switch {
	case err == nil:
		return nil
	case errors.As(err, &own):
		return own.err
	}
	where := fmt.Sprintf("etcdguard: %q at etcd %s", resource, s.addr())
	var unsent *unsentError
	var e rpctypes.EtcdError
	switch {
	case errors.Is(err, rpctypes.ErrPermissionDenied):
		return fmt.Errorf("%s: %w: grant the user readwrite on the prefix %s and on what is written", where, err, s.keys.base)
	case errors.Is(err, rpctypes.ErrUserEmpty):
		return fmt.Errorf("%s: %w: it asks for a user and a password", where, err)
	case errors.Is(err, rpctypes.ErrTooManyOps):
		return fmt.Errorf("%s: %w: %w: the guard needs two more than the caller's; write less at once or raise etcd's --max-txn-ops", where, locker.ErrInvalid, err)
	case errors.As(err, &e) && e.Code() == codes.InvalidArgument && !errors.Is(err, rpctypes.ErrAuthFailed) && !errors.Is(err, rpctypes.ErrAuthOldRevision):
		return fmt.Errorf("%s: %w: %w", where, locker.ErrInvalid, err)
	case refused(err):
		return fmt.Errorf("%s: %w", where, err)
	}
	// Beside the caller's own, a deadline in it is the driver's: it is not
	// wrapped.
	what := fmt.Errorf("%v: %w", err, locker.ErrUnavailable) //nolint:errorlint // on purpose
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		what = fmt.Errorf("given up before the answer: %w", ctx.Err())
	case ctx.Err() != nil:
		what = fmt.Errorf("no answer in time: %w: %w", ctx.Err(), locker.ErrUnavailable)
	}
	// Of etcd's own refusals one is not what it seems: a member that has no space
	// left may say so after it has written. Too many requests is said before.
	if errors.As(err, &unsent) || errors.Is(err, rpctypes.ErrTooManyRequests) {
		return fmt.Errorf("%s: %w", where, what)
	}
	return fmt.Errorf("%s: %w: %w", where, what, fencing.ErrUnknown)
}

// addr is where etcd is, for messages.
func (s *store) addr() string {
	client, ok := s.kv.(interface{ Endpoints() []string })
	if !ok {
		return "(behind its caller's own client)"
	}
	return strings.Join(client.Endpoints(), ",")
}
