package etcd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"

	"github.com/golockers/locker"
)

// The ends of a session, as its users see them.
var (
	// errGone: the lease is gone for certain, and with it all of its keys.
	errGone = errors.New("the session has expired")
	// errSilent: it was not heard of for a TTL, or is not kept alive any more
	// because nobody needs it. Its keys may still be there.
	errSilent = errors.New("the session could not be kept alive for a TTL")
)

// unsentError is a request that was not sent.
type unsentError struct{ reason string }

func (e *unsentError) Error() string { return e.reason }

// carriedOut reports whether a request that failed with err may have been
// carried out, or may yet be. What is not known for certain may have.
func carriedOut(err error) bool {
	var unsent *unsentError
	if errors.As(err, &unsent) || errors.Is(err, locker.ErrClosed) {
		return false
	}
	var e rpctypes.EtcdError
	if !errors.As(err, &e) {
		return true
	}
	switch e.Code() {
	case codes.InvalidArgument, codes.NotFound, codes.PermissionDenied, codes.Unauthenticated,
		codes.FailedPrecondition, codes.OutOfRange:
		return false
	case codes.ResourceExhausted:
		// What is refused for want of space is carried out all the same.
		return !errors.Is(err, rpctypes.ErrTooManyRequests)
	}
	return true
}

// refused reports whether err is etcd's last word: trying again does not help.
func refused(err error) bool {
	var e rpctypes.EtcdError
	if !errors.As(err, &e) {
		return false
	}
	switch e.Code() {
	case codes.InvalidArgument, codes.PermissionDenied, codes.Unauthenticated, codes.FailedPrecondition, codes.OutOfRange:
		return !errors.Is(err, rpctypes.ErrInvalidAuthToken) && !errors.Is(err, rpctypes.ErrAuthOldRevision)
	}
	return false
}

func leaseGone(err error) bool {
	return errors.Is(err, rpctypes.ErrLeaseNotFound) || errors.Is(err, errGone)
}

// failure says in the engine's words why there is no answer. ctx is the
// caller's: whoever's ended knows that.
func (b *Backend) failure(ctx context.Context, err error) error {
	if err != nil && (b.ctx.Err() != nil || errors.Is(err, locker.ErrClosed)) {
		return fmt.Errorf("etcd: %w", locker.ErrClosed)
	}
	if errors.Is(err, rpctypes.ErrPermissionDenied) {
		err = fmt.Errorf("%w: grant the user readwrite on the prefix %s", err, b.keys.base)
	}
	return failure(ctx, b.addr(), err)
}

func failure(ctx context.Context, addr string, err error) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("etcd %s: %w", addr, ctx.Err())
	case errors.Is(err, rpctypes.ErrUserEmpty):
		return fmt.Errorf("etcd %s: %w: it asks for a user and a password", addr, err)
	case refused(err):
		return fmt.Errorf("etcd %s: %w", addr, err)
	}
	// The driver's deadline is ours and not the caller's: it is not wrapped.
	return fmt.Errorf("etcd %s: %v: %w", addr, err, locker.ErrUnavailable) //nolint:errorlint // on purpose
}

// addr is where the cluster is, for messages.
func (b *Backend) addr() string { return strings.Join(b.client.Endpoints(), ",") }

// call makes one request. It fails at once where the driver would wait: when
// no member can be connected to (an unsentError).
func (b *Backend) call(ctx context.Context, request func(context.Context) error) error {
	if err := b.usable(ctx); err != nil {
		return err
	}
	limited, cancel := context.WithCancel(untimed{ctx})
	defer cancel()
	var limit alarm
	b.alarms.set(&limit, b.opts.Timeout, cancel)
	defer b.alarms.off(&limit)
	return b.timedOut(ctx, limited, request(limited))
}

// timedOut is err, or says that limited, made of ctx, ended before it.
func (b *Backend) timedOut(ctx, limited context.Context, err error) error {
	if err != nil && limited.Err() != nil && ctx.Err() == nil {
		return fmt.Errorf("no answer within %v%s", b.opts.Timeout, b.why())
	}
	return err
}

// untimed is a context that ends when another does and does not say when that
// is. The driver would tell the member, which would set timers of its own:
// some 5 % of a request's time.
type untimed struct{ context.Context }

// Deadline implements [context.Context].
func (untimed) Deadline() (time.Time, bool) { return time.Time{}, false }

// grace is what a connection that has just failed gets to be made again.
const grace = 250 * time.Millisecond

// usable returns nil if a request can be sent.
func (b *Backend) usable(ctx context.Context) error {
	if b.ctx.Err() != nil {
		return locker.ErrClosed
	}
	return b.connected(ctx)
}

// connected returns nil if there is a connection to a member, and waits for
// one that is being made. The driver would wait for as long as it is let.
func (b *Backend) connected(ctx context.Context) error {
	conn := b.client.ActiveConnection()
	if conn.GetState() == connectivity.Ready {
		return nil
	}
	limited, cancel := context.WithTimeout(ctx, b.opts.Timeout)
	defer cancel()
	failed := false
	for state := conn.GetState(); state != connectivity.Ready; state = conn.GetState() {
		switch {
		case state == connectivity.Idle:
			conn.Connect()
		case state == connectivity.TransientFailure && !failed:
			failed = true
			// The driver's pauses grow to two minutes: a request is a reason to try now.
			conn.ResetConnectBackoff()
			limited, cancel = context.WithTimeout(limited, grace)
			defer cancel()
		}
		if !conn.WaitForStateChange(limited, state) {
			return &unsentError{"no member can be connected to" + b.why()}
		}
	}
	return nil
}

// why returns what the driver knows of the reason why it is not connected,
// which it tells only to those who do not wait.
func (b *Backend) why() string {
	conn := b.client.ActiveConnection()
	if conn == nil || conn.GetState() != connectivity.TransientFailure {
		return ""
	}
	ctx, cancel := context.WithTimeout(b.ctx, 50*time.Millisecond)
	defer cancel()
	_, err := etcdserverpb.NewMaintenanceClient(conn).Status(ctx, &etcdserverpb.StatusRequest{})
	if err == nil || ctx.Err() != nil {
		return ""
	}
	_, text, found := strings.Cut(err.Error(), "desc = ")
	if !found {
		text = err.Error()
	}
	return ": " + strings.ReplaceAll(text, "\n", " ")
}
