package zookeeper

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-zookeeper/zk"

	"github.com/golockers/locker"
)

// pending is a request to the service. The driver knows no contexts: a call
// runs on a goroutine of its own, which ends with the answer or with the
// connection, and whoever started it may leave (R8). A session's slots bound
// how many there are.
type pending[T any] struct {
	done chan struct{} // closed when value and err are set
	v    T
	err  error
}

// start sends a request. An error means that nothing was sent.
func start[T any](ctx context.Context, s *session, f func(*zk.Conn) (T, error)) (*pending[T], error) {
	select {
	case s.slots <- struct{}{}:
	default:
		select {
		case s.slots <- struct{}{}:
		case <-s.dead:
			return nil, s.over()
		case <-ctx.Done():
			return nil, unanswered(ctx)
		}
	}
	p := &pending[T]{done: make(chan struct{})}
	if !s.work(func() {
		p.v, p.err = f(s.conn)
		<-s.slots
		close(p.done)
	}) {
		<-s.slots
		return nil, s.over()
	}
	return p, nil
}

// along starts a request that is sent right behind another one, which calls
// send from its own goroutine. There is none, and send does nothing, if all
// slots are taken.
func along[T any](s *session, f func(*zk.Conn) (T, error)) (p *pending[T], send func()) {
	select {
	case s.slots <- struct{}{}:
	default:
		return nil, func() {}
	}
	p = &pending[T]{done: make(chan struct{})}
	return p, func() {
		if !s.work(func() {
			p.v, p.err = f(s.conn)
			<-s.slots
			close(p.done)
		}) {
			p.err = zk.ErrClosing
			<-s.slots
			close(p.done)
		}
	}
}

// answered is a request whose answer is there.
func answered[T any](v T, err error) *pending[T] {
	p := &pending[T]{done: make(chan struct{}), v: v, err: err}
	close(p.done)
	return p
}

// isBusy reports whether some calls are under way.
func (s *session) isBusy() bool { return len(s.slots) >= 4 }

// wait returns the answer, or that there is none yet; known tells which.
func (p *pending[T]) wait(ctx context.Context) (v T, err error, known bool) {
	select {
	case <-p.done:
		return p.v, p.err, true
	default:
	}
	select {
	case <-p.done:
		return p.v, p.err, true
	case <-ctx.Done():
		return v, unanswered(ctx), false
	}
}

// ask sends a request over a connection that is there, and waits for the answer.
func ask[T any](ctx context.Context, s *session, f func(*zk.Conn) (T, error)) (T, error) {
	var none T
	if err := s.online(ctx); err != nil {
		return none, err
	}
	p, err := start(ctx, s, f)
	if err != nil {
		return none, err
	}
	v, err, known := p.wait(ctx)
	if known {
		err = s.failure(err)
	}
	return v, err
}

// idleWorkers is how many goroutines are kept for calls to come: a new one has
// to grow its stack on the way through the driver.
const idleWorkers = 16

// work is spawn for calls, on a goroutine that may have made some before.
func (s *session) work(f func()) bool {
	select {
	case s.jobs <- f:
		return true
	default:
	}
	return s.spawn(func() {
		for {
			f()
			if s.idle.Add(1) > idleWorkers {
				s.idle.Add(-1)
				return
			}
			select {
			case f = <-s.jobs:
				s.idle.Add(-1)
			case <-s.dead:
				return
			}
		}
	})
}

// spawn runs f on a goroutine that Close waits for. It returns false if the
// session is over.
func (s *session) spawn(f func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return false
	}
	s.goroutines.Go(f)
	return true
}

// unanswered is the error of a caller whose context ended before the answer.
func unanswered(ctx context.Context) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("zookeeper: no answer in time: %w: %w", ctx.Err(), locker.ErrUnavailable)
	}
	return fmt.Errorf("zookeeper: given up before the answer: %w", ctx.Err())
}

// refusal is an error that trying again does not mend.
type refusal struct{ err error }

func (r *refusal) Error() string { return r.err.Error() }
func (r *refusal) Unwrap() error { return r.err }

// disconnection reports whether err leaves it open what became of a request.
func disconnection(err error) bool {
	return errors.Is(err, zk.ErrConnectionClosed) || errors.Is(err, zk.ErrNoServer) ||
		errors.Is(err, zk.ErrClosing) || errors.Is(err, zk.ErrSessionMoved)
}

// refused reports an answer of the service that nothing was done, and that will
// be the same until somebody changes something.
func refused(err error) bool {
	return errors.Is(err, zk.ErrNoAuth) || errors.Is(err, zk.ErrAuthFailed) || errors.Is(err, zk.ErrInvalidACL) ||
		errors.Is(err, zk.ErrInvalidPath) || errors.Is(err, zk.ErrBadArguments) || errors.Is(err, zk.ErrNoChildrenForEphemerals)
}

// mayBeCreated reports that a creation that ended with this error may have been
// carried out: it was not answered, or with an error of the server's own.
func mayBeCreated(err error) bool { return err != nil && !gone(err) && !refused(err) }

// failure says what an error of the driver means. Those about a node pass as they are.
func (s *session) failure(err error) error {
	switch {
	case err == nil, errors.Is(err, zk.ErrNoNode), errors.Is(err, zk.ErrNodeExists), errors.Is(err, zk.ErrNotEmpty):
		return err
	case refused(err):
		return &refusal{fmt.Errorf("zookeeper: %w", err)}
	}
	if over := s.over(); over != nil {
		return over
	}
	return fmt.Errorf("zookeeper: %w: %w", err, locker.ErrUnavailable)
}
