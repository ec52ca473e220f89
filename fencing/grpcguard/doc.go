// Package grpcguard carries fencing tokens over gRPC, from the holder of a lock to
// the server that owns the resource, and makes that server refuse stale tokens.
//
// A token is sent in the metadata fencing-token, in decimal digits. The client holds the lock, and
// sends the token of its context:
//
//	conn, err := grpc.NewClient(target,
//		grpc.WithUnaryInterceptor(grpcguard.UnaryClient(nil)), …)
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
//	grpc.NewServer(grpc.UnaryInterceptor(grpcguard.UnaryServer(opts)))
//
// # The answers of the server
//
// The server refuses a call that writes: with FailedPrecondition if it has no token, or a token lower
// than the mark; with InvalidArgument if the token is malformed. The status has a google.rpc.ErrorInfo
// of [Domain] with the reason [ReasonStale] or [ReasonMissing], and the metadata resource, token and
// mark, so that clients in every language can recognize a refusal. The client interceptors of this
// package convert it to the errors of package fencing; status.FromError still understands these.
//
// # With a Guard, and without
//
// Options.Guard is for state in the memory of the one process that owns it: calls to one resource are
// handled one at a time. If the state is in a database, leave the Guard out: the handler gets the token
// from [fencing.TokenFor], by the resource's name, for the guard of the store. If the handler returns a
// refusal, the client gets it as such.
//
// A holder that reads, computes and writes must read with a call for which Options.Resource names the
// resource, as for a write. With a Guard, no earlier holder can write after that. Without one, the
// handler first calls Raise of the store's guard.
//
// Streams are not guarded, because a stream may outlast a hold: let its messages carry the token, and
// its handler check each write with a guard.
//
// # What it relies on
//
// Every write must come this way. Clients must be trusted: a client that sends too high a token keeps
// out all others. After no answer, or an error that leaves the outcome open, it is unknown whether the
// write happened, as with any call. Tokens do not order the calls of one holder.
package grpcguard
