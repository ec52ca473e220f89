package grpcguard_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"

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
	put   func(ctx context.Context, r, value string) error
	claim func(ctx context.Context, r string) error // before a get; nil: the server has raised the mark

	mu sync.Mutex
	of map[string]string
}

const put, get, claim = "/values/Put", "/values/Get", "/values/Claim"

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

// resource: a Get writes nothing. Neither does a Claim, but it raises the mark.
func resource(ctx context.Context, method string, _ any) string {
	if method == get {
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
			if method == claim && v.claim != nil {
				if err := v.claim(ctx, resourceOf(ctx)); err != nil {
					return nil, err
				}
			}
			v.mu.Lock()
			defer v.mu.Unlock()
			return wrapperspb.String(v.of[resourceOf(ctx)]), nil
		}
		return intercept(ctx, &in, &grpc.UnaryServerInfo{FullMethod: method}, handle)
	}
}

// serve starts a server and returns its address.
func serve(t *testing.T, v *values, opts *grpcguard.Options) string {
	t.Helper()
	s := grpc.NewServer(grpc.UnaryInterceptor(grpcguard.UnaryServer(opts)))
	s.RegisterService(&grpc.ServiceDesc{
		ServiceName: "values", HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{{MethodName: "Put", Handler: v.handler(put)},
			{MethodName: "Get", Handler: v.handler(get)}, {MethodName: "Claim", Handler: v.handler(claim)}},
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
		grpc.WithUnaryInterceptor(grpcguard.UnaryClient(opts)))
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
				opts.Guard = nil
				guarded := func(ctx context.Context, r string, write func() error) error {
					token, err := fencing.TokenFor(ctx, r)
					if err != nil {
						return err
					}
					return guard.Do(ctx, r, token, write)
				}
				v.put = func(ctx context.Context, r, value string) error {
					return guarded(ctx, r, func() error { return v.set(ctx, r, value) })
				}
				v.claim = func(ctx context.Context, r string) error { return guarded(ctx, r, nil) }
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
						_, err := call(fencing.NewContext(ctx, r, token), conn, claim, r, "")
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
	v.put = func(context.Context, string, string) error { return status.Error(codes.Aborted, "") }
	_, err = call(fencing.NewContext(t.Context(), "r", 10), conn, put, "r", "")
	assert.Equal(t, codes.Aborted, status.Code(err), "a handler's own status")
	mark, _ := guard.Mark("r")
	assert.Equal(t, fencing.Token(10), mark, "whatever the handler returns")
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
	assert.Panics(t, func() { grpcguard.UnaryServer(nil) })
}
