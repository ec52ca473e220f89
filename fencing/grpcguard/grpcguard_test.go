package grpcguard_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/golockers/locker"
	"github.com/golockers/locker/fencing"
	"github.com/golockers/locker/fencing/grpcguard"
	"github.com/golockers/locker/internal/guardtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// values is a service without generated code: what is written is a value, and the
// resource is in the metadata "for".
type values struct {
	put func(ctx context.Context, r, value string) error

	mu sync.Mutex
	of map[string]string
}

const put, get, watch = "/values/Put", "/values/Get", "/values/Watch"

func (v *values) set(_ context.Context, r, value string) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.of[r] = value
	return nil
}

func resourceOf(ctx context.Context) string {
	if of := metadata.ValueFromIncomingContext(ctx, "for"); len(of) == 1 {
		return of[0]
	}
	return ""
}

// resource: a Get writes nothing, but its mark can be raised.
func resource(ctx context.Context, method string, _ any) string {
	if method == get && len(metadata.ValueFromIncomingContext(ctx, "fencing-raise")) == 0 {
		return ""
	}
	return resourceOf(ctx)
}

func (v *values) handler(method string) grpc.MethodHandler {
	return func(
		_ any, ctx context.Context, decode func(any) error, intercept grpc.UnaryServerInterceptor,
	) (any, error) {
		var in wrapperspb.StringValue
		if err := decode(&in); err != nil {
			return nil, err
		}
		handle := func(ctx context.Context, req any) (any, error) {
			if method == put {
				return &in, v.put(ctx, resourceOf(ctx), req.(*wrapperspb.StringValue).GetValue())
			}
			v.mu.Lock()
			defer v.mu.Unlock()
			return wrapperspb.String(v.of[resourceOf(ctx)]), nil
		}
		if intercept == nil {
			return handle(ctx, &in)
		}
		return intercept(ctx, &in, &grpc.UnaryServerInfo{FullMethod: method}, handle)
	}
}

// serve starts a server and returns its address. Without options it has no
// interceptors.
func serve(t *testing.T, v *values, opts *grpcguard.Options) string {
	t.Helper()
	var with []grpc.ServerOption
	if opts != nil {
		with = append(with, grpc.UnaryInterceptor(grpcguard.UnaryServer(opts)),
			grpc.StreamInterceptor(grpcguard.StreamServer(opts)))
	}
	s := grpc.NewServer(with...)
	s.RegisterService(&grpc.ServiceDesc{
		ServiceName: "values", HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{{MethodName: "Put", Handler: v.handler(put)},
			{MethodName: "Get", Handler: v.handler(get)}},
		Streams: []grpc.StreamDesc{{StreamName: "Watch", ServerStreams: true, ClientStreams: true,
			Handler: func(_ any, stream grpc.ServerStream) error {
				return v.put(stream.Context(), resourceOf(stream.Context()), "streamed")
			}}},
	}, v)
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Stop()
		assert.NoError(t, <-done)
	})
	return l.Addr().String()
}

func dial(t *testing.T, addr string, opts *grpcguard.ClientOptions) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithUnaryInterceptor(grpcguard.UnaryClient(opts)),
		grpc.WithStreamInterceptor(grpcguard.StreamClient(opts)))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func call(ctx context.Context, conn *grpc.ClientConn, method, r, value string) (string, error) {
	var out wrapperspb.StringValue
	err := conn.Invoke(metadata.AppendToOutgoingContext(ctx, "for", r), method, wrapperspb.String(value), &out)
	return out.GetValue(), err
}

// cancelled has the context's error in the place of a status that says so.
func cancelled(err error) error {
	if status.Code(err) == codes.Canceled {
		return context.Canceled
	}
	return err
}

func TestSuite(t *testing.T) {
	for _, name := range []string{"guard of the server", "guard of its store"} {
		t.Run(name, func(t *testing.T) {
			var guard fencing.Guard
			v := &values{of: map[string]string{}}
			v.put = v.set
			opts := &grpcguard.Options{Resource: resource, Guard: &guard}
			if name == "guard of its store" {
				opts.Guard, opts.Raise = nil, guard.Raise
				v.put = func(ctx context.Context, r, value string) error {
					token, err := fencing.TokenFor(ctx, r)
					if err != nil {
						return err
					}
					return guard.Do(ctx, r, token, func() error { return v.set(ctx, r, value) })
				}
			}
			addr := serve(t, v, opts)
			guardtest.Run(t, func(t *testing.T) guardtest.Store {
				conn := dial(t, addr, nil)
				return guardtest.Store{
					Write: func(ctx context.Context, r string, token fencing.Token, value string) error {
						_, err := call(fencing.NewContext(ctx, r, token), conn, put, r, value)
						return cancelled(err)
					},
					Raise: func(ctx context.Context, r string, token fencing.Token) error {
						_, err := call(grpcguard.RaiseFirst(fencing.NewContext(ctx, r, token)), conn, get, r, "")
						return cancelled(err)
					},
					Read: func(ctx context.Context, r string) (string, error) { return call(ctx, conn, get, r, "") },
					Mark: func(_ context.Context, r string) (fencing.Token, error) {
						mark, _ := guard.Mark(r)
						return mark, nil
					},
				}
			})
		})
	}
}

func TestTheMarkMovesWhateverTheHandlerReturns(t *testing.T) {
	var guard fencing.Guard
	said := status.Error(codes.Aborted, "")
	v := &values{put: func(context.Context, string, string) error { return said }}
	conn := dial(t, serve(t, v, &grpcguard.Options{Resource: resource, Guard: &guard}), nil)
	_, err := call(fencing.NewContext(t.Context(), "r", 5), conn, put, "r", "")
	assert.Equal(t, codes.Aborted, status.Code(err))
	mark, _ := guard.Mark("r")
	assert.Equal(t, fencing.Token(5), mark)
}

func TestARefusalIsAStatusForOtherLanguages(t *testing.T) {
	var guard fencing.Guard
	require.NoError(t, guard.Raise(t.Context(), "r", 9))
	v := &values{of: map[string]string{}}
	v.put = v.set
	conn := dial(t, serve(t, v, &grpcguard.Options{Resource: resource, Guard: &guard}), nil)
	ctx := fencing.NewContext(t.Context(), "r", 8)
	_, err := call(ctx, conn, put, "r", "")
	guardtest.Stale(t, err, "r", 8, 9)
	assert.Equal(t, codes.FailedPrecondition, status.Code(err))
	for _, bad := range [][]string{{"x"}, {"007"}, {"1", "2"}, {"-1"}} {
		for _, value := range bad {
			ctx = metadata.AppendToOutgoingContext(ctx, grpcguard.Key, value) // left alone
		}
		_, err = call(ctx, conn, put, "r", "")
		assert.Equal(t, codes.InvalidArgument, status.Code(err), "%v", bad)
		ctx = fencing.NewContext(t.Context(), "r", 8)
	}
	_, err = call(metadata.AppendToOutgoingContext(fencing.NewContext(t.Context(), "r", 10), grpcguard.Key, "7"),
		conn, put, "r", "")
	guardtest.Stale(t, err, "r", 7, 9)
	_, err = call(grpcguard.RaiseFirst(fencing.NewContext(t.Context(), "", 10)), conn, get, "", "")
	assert.Equal(t, codes.Unimplemented, status.Code(err), "nobody knows whose mark to raise")
	carrier := dial(t, serve(t, v, &grpcguard.Options{Resource: resource}), nil)
	for _, conn := range []*grpc.ClientConn{conn, carrier} {
		_, err = call(t.Context(), conn, put, "r", "")
		require.ErrorIs(t, err, fencing.ErrMissing)
	}
	assert.Empty(t, v.of)
	v.put = func(context.Context, string, string) error {
		return fmt.Errorf("db.internal: %w", &fencing.StaleError{Resource: "r", Token: 8, Mark: 9})
	}
	_, err = call(fencing.NewContext(t.Context(), "r", 8), carrier, put, "r", "")
	guardtest.Stale(t, err, "r", 8, 9)
	assert.NotContains(t, status.Convert(err).Message(), "db.internal", "what is around it is the server's own")
}

func TestStreams(t *testing.T) {
	var guard fencing.Guard
	v := &values{put: func(ctx context.Context, r, _ string) error {
		token, err := fencing.TokenFor(ctx, r)
		if err != nil {
			return err
		}
		return guard.Do(ctx, r, token, nil)
	}}
	conn := dial(t, serve(t, v, &grpcguard.Options{Resource: resource}), nil)
	stream := func(ctx context.Context, token fencing.Token) error {
		ctx = fencing.NewContext(metadata.AppendToOutgoingContext(ctx, "for", "r"), "r", token)
		s, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, watch)
		if err != nil {
			return err
		}
		return s.RecvMsg(new(wrapperspb.StringValue))
	}
	require.ErrorIs(t, stream(t.Context(), 5), io.EOF)
	guardtest.Stale(t, stream(t.Context(), 4), "r", 4, 5)
	require.ErrorIs(t, stream(t.Context(), 0), fencing.ErrMissing)

	// A stream that shall raise the mark is refused, by our own client and for one in another language.
	require.ErrorIs(t, stream(grpcguard.RaiseFirst(t.Context()), 6), errors.ErrUnsupported)
	err := stream(metadata.AppendToOutgoingContext(t.Context(), "fencing-raise", "1"), 6)
	assert.Equal(t, codes.Unimplemented, status.Code(err))
	mark, _ := guard.Mark("r")
	assert.Equal(t, fencing.Token(5), mark, "it was not handled")
}

// A method is not known to be safe, as it is over HTTP. A call that raises the mark first
// and writes is in its turn, so that no newer holder writes before it has finished.
func TestACallThatRaisesFirstHasTheTurn(t *testing.T) {
	var guard fencing.Guard
	var newer error
	v := &values{put: func(ctx context.Context, r, _ string) error {
		mark, _ := guard.Mark(r)
		assert.Equal(t, fencing.Token(1), mark, "raised before the handler is called")
		ctx, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
		defer cancel()
		newer = guard.Do(ctx, r, 2, nil)
		return nil
	}}
	conn := dial(t, serve(t, v, &grpcguard.Options{Resource: resource, Guard: &guard}), nil)
	raise := grpcguard.RaiseFirst(fencing.NewContext(t.Context(), "r", 1))
	_, err := call(raise, conn, put, "r", "first")
	require.NoError(t, err)
	require.ErrorIs(t, newer, context.DeadlineExceeded, "a newer holder wrote meanwhile")
	require.NoError(t, guard.Do(t.Context(), "r", 2, nil))
	_, err = call(raise, conn, put, "r", "late")
	guardtest.Stale(t, err, "r", 1, 2)
}

func TestClientsAreNotGuessedFor(t *testing.T) {
	v := &values{of: map[string]string{}}
	v.put = func(ctx context.Context, r, _ string) error {
		token, err := fencing.TokenFor(ctx, r)
		return errors.Join(err, v.set(ctx, r, token.String()))
	}
	addr := serve(t, v, &grpcguard.Options{Resource: resource})
	ctx := fencing.NewContext(fencing.NewContext(t.Context(), "order", 3), "invoice", 900)
	_, err := call(ctx, dial(t, addr, nil), put, "order", "")
	require.ErrorIs(t, err, locker.ErrInvalid)
	assert.ErrorContains(t, err, `"invoice", "order"`)
	_, err = call(ctx, dial(t, addr,
		&grpcguard.ClientOptions{Lock: func(context.Context, string) string { return "order" }}), put, "order", "")
	require.NoError(t, err)
	assert.Equal(t, "3", v.of["order"])

	// Nobody has raised the mark: by a server without a guard, and by one without interceptors.
	raise := grpcguard.RaiseFirst(fencing.NewContext(t.Context(), "order", 3))
	_, err = call(raise, dial(t, addr, nil), get, "order", "")
	assert.Equal(t, codes.Unimplemented, status.Code(err))
	_, err = call(raise, dial(t, serve(t, v, nil), nil), get, "order", "")
	require.ErrorIs(t, err, errors.ErrUnsupported)
	_, err = call(grpcguard.RaiseFirst(t.Context()), dial(t, addr, nil), get, "order", "")
	require.ErrorIs(t, err, fencing.ErrMissing)
	assert.Panics(t, func() { grpcguard.UnaryServer(nil) })
}
