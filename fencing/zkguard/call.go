package zkguard

import (
	"context"
	"errors"

	"github.com/go-zookeeper/zk"

	"github.com/golockers/locker/internal/znode"
)

// unansweredError is a request without an answer.
type unansweredError struct {
	err     error
	unknown bool // the request may have been carried out, or may yet be
}

func (e *unansweredError) Error() string { return e.err.Error() }
func (e *unansweredError) Unwrap() error { return e.err }

// ask makes one request. Its goroutine ends with the answer or with the connection.
func ask[T any](ctx context.Context, g *Guard, request func(*zk.Conn) (T, error)) (v T, err error) {
	start := func(f func()) bool { go f(); return true }
	v, progress, err := znode.Ask(ctx, g.slots, start, func() (T, error) { return request(g.conn) })
	if progress != znode.Answered {
		return v, &unansweredError{err, progress == znode.Left}
	}
	switch kind := znode.KindOf(err); kind {
	case znode.Unsent, znode.Unknown:
		return v, &unansweredError{err, kind == znode.Unknown}
	default:
		return v, err
	}
}

// again makes a request that may be carried out twice. If the connection broke, it
// makes the request once more; the driver then sends it to another server.
func again[T any](ctx context.Context, g *Guard, request func(*zk.Conn) (T, error)) (T, error) {
	v, err := ask(ctx, g, request)
	var lost *unansweredError
	if errors.As(err, &lost) && lost.unknown && ctx.Err() == nil {
		v, err = ask(ctx, g, request)
	}
	if errors.As(err, &lost) {
		lost.unknown = false // it changes nothing whether it was carried out
	}
	return v, err
}
