package grpcguard

import (
	"cmp"
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/golockers/locker/fencing"
	"github.com/golockers/locker/internal/carried"
)

// Options are the settings of a server's interceptor.
type Options struct {
	// Resource names the state that a call writes, or whose mark it raises; see [fencing.Guard.Do]. "":
	// the call writes nothing, and passes with or without a token. Resource is required.
	Resource func(ctx context.Context, method string, req any) string

	// Guard checks the tokens, and makes check and write one atomic step. nil: tokens are only put into
	// the handler's context.
	Guard *fencing.Guard

	_ struct{}
}

// UnaryServer returns an interceptor that passes a call to its handler with its token
// in the context, under the resource's name. It refuses the calls that the package
// documentation lists.
//
// With a Guard, handlers for one resource run one at a time, and only if the token is not lower than
// the mark. The mark then moves, whatever the handler returns: calls of earlier holders come too late
// in any case. Work that a handler starts and does not wait for is not protected.
//
// UnaryServer panics if Options.Resource is nil.
func UnaryServer(opts *Options) grpc.UnaryServerInterceptor {
	if opts == nil || opts.Resource == nil {
		panic("grpcguard: Options.Resource is required: it names what a call writes to")
	}
	o := *opts
	return func(
		ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler,
	) (resp any, err error) {
		resource := o.Resource(ctx, info.FullMethod, req)
		var token fencing.Token
		if values := metadata.ValueFromIncomingContext(ctx, Key); len(values) > 0 || resource != "" {
			if token, err = carried.Incoming("metadata "+Key, values); err != nil {
				return nil, toStatus(err)
			}
			ctx = fencing.NewContext(ctx, resource, token)
		}
		var said error
		err = carried.Handle(ctx, o.Guard, resource, token, func() { resp, said = handle(ctx, req) })
		return resp, toStatus(cmp.Or(err, said))
	}
}
