package grpcguard

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/golockers/locker/fencing"
	"github.com/golockers/locker/internal/carried"
)

// Key is the metadata key of a fencing token, which is sent in decimal digits.
const Key = "fencing-token"

// ClientOptions are the settings of a client's interceptor. The zero value, or
// nil, means the defaults.
type ClientOptions struct {
	// Lock names the lock whose token a call carries, if contexts may have tokens of several locks.
	// nil, or "": the only one.
	Lock func(ctx context.Context, method string) string

	_ struct{}
}

// UnaryClient returns an interceptor that sends the token of a call's context, if there is one; the
// server decides which calls need one. If the context has tokens of several locks and
// ClientOptions.Lock is not set, nothing is sent, and the error names the locks. A refusal of the
// server is a [*fencing.StaleError], or matches [fencing.ErrMissing].
func UnaryClient(opts *ClientOptions) grpc.UnaryClientInterceptor {
	return func(
		ctx context.Context, method string, req, reply any, conn *grpc.ClientConn,
		invoke grpc.UnaryInvoker, callOpts ...grpc.CallOption,
	) error {
		ctx, err := opts.outgoing(ctx, method)
		if err != nil {
			return err
		}
		return fromStatus(invoke(ctx, method, req, reply, conn, callOpts...))
	}
}

// outgoing returns ctx with its token as metadata, or with what the caller has set by hand, as a proxy
// does.
func (o *ClientOptions) outgoing(ctx context.Context, method string) (context.Context, error) {
	if md, ok := metadata.FromOutgoingContext(ctx); ok && len(md.Get(Key)) > 0 {
		return ctx, nil
	}
	lock := ""
	if o != nil && o.Lock != nil {
		lock = o.Lock(ctx, method)
	}
	token, err := carried.Outgoing(ctx, lock)
	switch {
	case errors.Is(err, fencing.ErrMissing) && lock == "":
		return ctx, nil
	case err != nil:
		return nil, fmt.Errorf("grpcguard: %s: %w", method, err)
	}
	return metadata.AppendToOutgoingContext(ctx, Key, token.String()), nil
}
