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

// ask makes one request. The driver knows no contexts, so the request runs in a
// goroutine of its own. That goroutine ends with the answer or with the connection;
// ask returns when ctx ends (R8).
func ask[T any](ctx context.Context, g *Guard, request func(*zk.Conn) (T, error)) (T, error) {
	var none T
	if err := ctx.Err(); err != nil {
		return none, &unansweredError{err, false}
	}
	select {
	case g.slots <- struct{}{}:
	case <-ctx.Done():
		return none, &unansweredError{ctx.Err(), false}
	}
	type answer struct {
		v   T
		err error
	}
	answers := make(chan answer, 1)
	go func() {
		v, err := request(g.conn)
		<-g.slots
		answers <- answer{v, err}
	}()
	select {
	case a := <-answers:
		switch kind := znode.KindOf(a.err); kind {
		case znode.Unsent, znode.Unknown:
			return none, &unansweredError{a.err, kind == znode.Unknown}
		default:
			return a.v, a.err
		}
	case <-ctx.Done():
		return none, &unansweredError{ctx.Err(), true}
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
