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

// Metadata of calls and of their answers.
const (
	Key       = "fencing-token" // the token, in decimal digits
	raiseKey  = "fencing-raise"
	raisedKey = "fencing-raised"
)

// ClientOptions are the settings of a client's interceptors. The zero value, or
// nil, means the defaults.
type ClientOptions struct {
	// Lock names the lock whose token a call carries, if contexts may have tokens of
	// several locks. nil, or "": the only one.
	Lock func(ctx context.Context, method string) string

	_ struct{}
}

type raiseFirst struct{}

// RaiseFirst returns a context for one unary call that makes the server raise the mark
// of the call's resource before it handles the call. The answer was then read after the
// mark was raised, and no earlier holder can write any more. A holder that reads,
// computes and writes reads with such a call. The call needs a token. If the server has
// a Guard, the call waits for its resource's turn, whether it writes or not. A stream with
// such a context is an error that matches [errors.ErrUnsupported].
func RaiseFirst(ctx context.Context) context.Context {
	return context.WithValue(ctx, raiseFirst{}, true)
}

// UnaryClient returns an interceptor that sends the token of a call's context along, if
// there is one; the server decides which calls need one. If the context has tokens of
// several locks and there is no ClientOptions.Lock, nothing is sent, and the error names
// the locks. A refusal of the server is a [*fencing.StaleError], or matches
// [fencing.ErrMissing].
func UnaryClient(opts *ClientOptions) grpc.UnaryClientInterceptor {
	return func(
		ctx context.Context, method string, req, reply any, conn *grpc.ClientConn,
		invoke grpc.UnaryInvoker, callOpts ...grpc.CallOption,
	) error {
		ctx, err := opts.outgoing(ctx, method)
		if err != nil {
			return err
		}
		raise := ctx.Value(raiseFirst{}) != nil
		var header metadata.MD
		if raise {
			ctx = metadata.AppendToOutgoingContext(ctx, raiseKey, "1")
			callOpts = append(callOpts, grpc.Header(&header))
		}
		err = fromStatus(invoke(ctx, method, req, reply, conn, callOpts...))
		if err == nil && raise && len(header.Get(raisedKey)) == 0 {
			return fmt.Errorf("grpcguard: the server answered %s without having raised the mark: %w", method,
				errors.ErrUnsupported)
		}
		return err
	}
}

// StreamClient is [UnaryClient] for streams.
func StreamClient(opts *ClientOptions) grpc.StreamClientInterceptor {
	return func(
		ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string,
		stream grpc.Streamer, callOpts ...grpc.CallOption,
	) (grpc.ClientStream, error) {
		if ctx.Value(raiseFirst{}) != nil {
			return nil, fmt.Errorf("grpcguard: %s is a stream: call RaiseFirst for a unary call before it: %w",
				method, errors.ErrUnsupported)
		}
		ctx, err := opts.outgoing(ctx, method)
		if err != nil {
			return nil, err
		}
		s, err := stream(ctx, desc, conn, method, callOpts...)
		if err != nil {
			return nil, fromStatus(err)
		}
		return clientStream{s}, nil
	}
}

type clientStream struct{ grpc.ClientStream }

// RecvMsg gets the end of the stream, which may be a refusal.
func (s clientStream) RecvMsg(m any) error { return fromStatus(s.ClientStream.RecvMsg(m)) }

// outgoing returns ctx with its token as metadata, or with what the caller has put there by hand, as a proxy does.
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
	case errors.Is(err, fencing.ErrMissing) && lock == "" && ctx.Value(raiseFirst{}) == nil:
		return ctx, nil
	case err != nil:
		return nil, fmt.Errorf("grpcguard: %s: %w", method, err)
	}
	return metadata.AppendToOutgoingContext(ctx, Key, token.String()), nil
}
