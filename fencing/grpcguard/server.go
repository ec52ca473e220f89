package grpcguard

import (
	"cmp"
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/golockers/locker/fencing"
	"github.com/golockers/locker/internal/carried"
)

// Options are the settings of a server's interceptors.
type Options struct {
	// Resource names the state that a call writes, or whose mark it raises; see
	// [fencing.Guard.Do]. "": the call writes nothing, and passes with and without a
	// token. req is nil for streams. Resource is required.
	Resource func(ctx context.Context, method string, req any) string

	// Guard checks the tokens of unary calls, and lets nothing come between the check
	// and the write. It is for state in the memory of this process. nil: tokens are
	// only put into the handler's context, for the guard of a store.
	Guard *fencing.Guard

	// Raise is called for calls of [RaiseFirst] if Guard is nil: it is the method Raise
	// of the store's guard. nil: such calls are answered with Unimplemented.
	Raise func(ctx context.Context, resource string, token fencing.Token) error

	_ struct{}
}

// UnaryServer returns an interceptor that passes a call to its handler with its token
// in the context, under the resource's name. It refuses the calls that the package
// documentation lists.
//
// With a Guard, the handler is called in the resource's turn, and only if the token is
// not lower than the mark. The mark then moves, whatever the handler returns: calls of
// earlier holders come too late in any case. Work that a handler has started and does
// not wait for is not protected.
//
// UnaryServer panics if Options.Resource is nil.
func UnaryServer(opts *Options) grpc.UnaryServerInterceptor {
	o := checked(opts)
	return func(
		ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler,
	) (resp any, err error) {
		resource := o.Resource(ctx, info.FullMethod, req)
		raise := asksToRaise(ctx)
		ctx, token, err := incoming(ctx, resource, raise)
		server := carried.Server{Guard: o.Guard, Store: o.Raise}
		if err == nil && raise {
			if err = server.Raise(ctx, resource, token); err == nil {
				err = grpc.SetHeader(ctx, metadata.Pairs(raisedKey, "1"))
			}
		}
		if err == nil {
			var said error
			err = server.Handle(ctx, resource, token, func() { resp, said = handle(ctx, req) })
			err = cmp.Or(err, said)
		}
		return resp, toStatus(err)
	}
}

// asksToRaise reports whether the client's context is one of [RaiseFirst].
func asksToRaise(ctx context.Context) bool {
	return len(metadata.ValueFromIncomingContext(ctx, raiseKey)) > 0
}

// StreamServer returns an interceptor that puts the token of a stream into its context.
// A stream that writes, as Options.Resource says, is refused without a token. The token
// is not compared with a mark. A stream of [RaiseFirst] is answered with Unimplemented.
func StreamServer(opts *Options) grpc.StreamServerInterceptor {
	o := checked(opts)
	return func(
		srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler,
	) error {
		resource := o.Resource(stream.Context(), info.FullMethod, nil)
		ctx, _, err := incoming(stream.Context(), resource, false)
		if err == nil && asksToRaise(ctx) {
			err = status.Error(codes.Unimplemented, "the mark is raised only by a unary call")
		}
		if err == nil {
			err = handle(srv, serverStream{stream, ctx})
		}
		return toStatus(err)
	}
}

type serverStream struct {
	grpc.ServerStream
	ctx context.Context // Context returns it
}

func (s serverStream) Context() context.Context { return s.ctx }

func checked(opts *Options) Options {
	if opts == nil || opts.Resource == nil {
		panic("grpcguard: Options.Resource is required: it names what a call writes to")
	}
	return *opts
}

// incoming returns the token of a call, and a context with it.
func incoming(ctx context.Context, resource string, needed bool) (context.Context, fencing.Token, error) {
	values := metadata.ValueFromIncomingContext(ctx, Key)
	if len(values) == 0 && resource == "" && !needed {
		return ctx, 0, nil
	}
	token, err := carried.Incoming("metadata "+Key, values)
	if err != nil {
		return nil, 0, err
	}
	return fencing.NewContext(ctx, resource, token), token, nil
}
