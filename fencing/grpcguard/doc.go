// Package grpcguard carries fencing tokens over gRPC, from the holder of a lock to
// the server that owns the resource, and has that server refuse stale ones.
//
// A token travels as the metadata fencing-token, in decimal digits. The client
// holds the lock, and sends the token of its context along:
//
//	conn, err := grpc.NewClient(target,
//		grpc.WithUnaryInterceptor(grpcguard.UnaryClient(nil)),
//		grpc.WithStreamInterceptor(grpcguard.StreamClient(nil)), …)
//
// The server names what a call writes to:
//
//	opts := &grpcguard.Options{
//		Guard: &guard,
//		Resource: func(ctx context.Context, method string, req any) string {
//			if r, ok := req.(*pb.SaveRequest); ok {
//				return "report/" + r.GetId()
//			}
//			return "" // reads
//		},
//	}
//	grpc.NewServer(
//		grpc.UnaryInterceptor(grpcguard.UnaryServer(opts)),
//		grpc.StreamInterceptor(grpcguard.StreamServer(opts)))
//
// # What the server answers
//
// A call that writes is refused with FailedPrecondition if it has no token, or one
// that is lower than the mark, and with InvalidArgument if what it has is no
// token. The status has a google.rpc.ErrorInfo of [Domain] with the reason
// [ReasonStale] or [ReasonMissing], and as metadata resource, token and mark, so
// that clients in every language can tell them. The interceptors of this package
// make of it the errors of package fencing, which status.FromError still
// understands.
//
// # With a Guard, and without
//
// With Options.Guard, the check, the handler and the move of the mark are one
// step: calls to one resource are handled one at a time. That is for state in the
// memory of the one process that owns it. Where the state is in a database, leave
// the Guard out: the handler finds the token by [fencing.TokenFor], with the name
// of the resource, for the guard of the store. A handler's error that is a refusal
// goes back as one.
//
// Streams have no turn, since they may last: their handlers find the token and ask
// a guard for each write.
//
// # What it rests on
//
// On every write coming this way, and on clients that may be believed: one that
// sends a token which is too high keeps out all others. An answer that never came,
// or one that leaves open what was done, leaves unknown whether the write
// happened, as with any call. Tokens do not order the calls of one holder among
// each other.
package grpcguard
