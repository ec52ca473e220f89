package zkguard

import (
	"context"
	"errors"

	"github.com/go-zookeeper/zk"

	"github.com/golockers/locker/internal/znode"
)

// unsentError is why a request was not sent, or one that can be repeated got no
// answer.
type unsentError struct{ err error }

func (e *unsentError) Error() string { return e.err.Error() }
func (e *unsentError) Unwrap() error { return e.err }

// unansweredError is a request whose outcome is not known.
type unansweredError struct{ err error }

func (e *unansweredError) Error() string { return e.err.Error() }
func (e *unansweredError) Unwrap() error { return e.err }

// refusal is the guard's own word, which is passed on as it is.
type refusal struct{ err error }

func (e *refusal) Error() string { return e.err.Error() }

// ask makes one request. The driver knows no contexts: it is called on a
// goroutine of its own, which ends with the answer or with the connection, and
// whoever started it may leave (R8).
func ask[T any](ctx context.Context, s *store, request func(*zk.Conn) (T, error)) (T, error) {
	var none T
	if err := ctx.Err(); err != nil {
		return none, &unsentError{err}
	}
	select {
	case s.slots <- struct{}{}:
	case <-ctx.Done():
		return none, &unsentError{ctx.Err()}
	}
	type answer struct {
		v   T
		err error
	}
	answers := make(chan answer, 1)
	go func() {
		v, err := request(s.conn)
		<-s.slots
		answers <- answer{v, err}
	}()
	select {
	case a := <-answers:
		switch znode.KindOf(a.err) {
		case znode.Unsent:
			return none, &unsentError{a.err}
		case znode.Unknown:
			return none, &unansweredError{a.err}
		default:
			return a.v, a.err
		}
	case <-ctx.Done():
		return none, &unansweredError{ctx.Err()}
	}
}

// again makes a request that may be carried out twice, and makes it once more
// if the connection broke under it. The driver sends that when it has found
// another server.
func again[T any](ctx context.Context, s *store, request func(*zk.Conn) (T, error)) (T, error) {
	v, err := ask(ctx, s, request)
	var lost *unansweredError
	if errors.As(err, &lost) && ctx.Err() == nil {
		v, err = ask(ctx, s, request)
	}
	if errors.As(err, &lost) {
		err = &unsentError{lost.err}
	}
	return v, err
}
