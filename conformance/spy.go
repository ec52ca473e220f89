package conformance

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/golockers/locker/driver"
)

// spy is a client of the service that records its calls and their answers.
type spy struct {
	driver.Backend
	who      string
	h        *history
	patience time.Duration // with a call whose context has ended
	names    []string      // that List should report
	line     Fault         // nil: it cannot be broken
	some     bool          // line leads to some of the servers only

	mu     sync.Mutex
	under  map[*call]context.CancelFunc // calls that can be canceled
	closed bool
	stops  map[string]func() // of Notify, by name
}

func newSpy(b driver.Backend, who string, h *history, names []string, patience time.Duration) *spy {
	return &spy{Backend: b, who: who, h: h, names: names, patience: patience,
		under: map[*call]context.CancelFunc{}, stops: map[string]func(){}}
}

// errCause is the cause with which contexts end. A backend's error must match the context's error,
// whatever the cause.
var errCause = errors.New("the caller has its reasons")

// endless is a context that no step of a script ends.
type endless struct{ context.Context }

// do makes a call, and records it. It gives up on a call that does not return.
func (s *spy) do(ctx context.Context, c *call, f func(context.Context) (driver.Grant, error)) (driver.Grant, error) {
	type answer struct {
		grant driver.Grant
		err   error
	}
	_, c.endless = ctx.(endless)
	ctx, cancelBecause := context.WithCancelCause(ctx)
	cancel := func() { cancelBecause(errCause) }
	defer cancel()
	if !c.endless {
		defer s.cancellable(c, cancel)()
	}
	c.who, c.over = s.who, ctx.Err() != nil
	c.deadline, _ = ctx.Deadline()
	s.h.tick()
	s.h.add(c)
	s.h.tick()
	isOver := make(chan struct{})
	note := context.AfterFunc(ctx, func() {
		s.h.change(func() {
			if c.ctxEnded.IsZero() && c.ended.IsZero() {
				c.ctxEnded = time.Now()
			}
		})
		close(isOver)
	})
	defer note()
	answers := make(chan answer, 1)
	go func() {
		var a answer
		defer func() {
			if p := recover(); p != nil {
				a.err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
			}
			answers <- a
		}()
		a.grant, a.err = f(ctx)
	}()
	var late <-chan time.Time
	for {
		select {
		case a := <-answers:
			s.h.tick()
			err := ctx.Err()
			s.h.change(func() {
				c.ended, c.grant, c.err = time.Now(), a.grant, a.err
				if err != nil && c.ctxEnded.IsZero() { // the recording of its end may be late
					c.ctxEnded = c.ended
				}
			})
			return a.grant, a.err
		case <-isOver:
			isOver, late = nil, time.After(s.patience)
		case <-late:
			return driver.Grant{}, ctx.Err()
		}
	}
}

// cancellable makes cancel reach a call until the call has ended.
func (s *spy) cancellable(c *call, cancel context.CancelFunc) (over func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.under[c] = cancel
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.under, c)
	}
}

// cancel ends the contexts of the client's calls.
func (s *spy) cancel() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, cancel := range s.under {
		cancel()
	}
}

func (s *spy) isClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

// acquire asks for a, possibly again.
func (s *spy) acquire(ctx context.Context, a *attempt, queued func()) (driver.Grant, error) {
	c := &call{op: opAcquire, name: a.req.Name, of: a}
	req := s.requested(a)
	req.Queued = func() {
		s.h.change(func() {
			if c.queued.IsZero() {
				c.queued = time.Now()
			}
		})
		queued()
	}
	grant, err := s.do(ctx, c, func(ctx context.Context) (driver.Grant, error) { return acquire(ctx, s.Backend, req) })
	s.seen(a, grant)
	return grant, err
}

// requested is the request of a, which records calls of Lost.
func (s *spy) requested(a *attempt) driver.Request {
	req := a.req
	req.Lost = func() { s.h.happened(&call{op: opLost, who: s.who, name: req.Name, of: a}) }
	req.Queued = func() {}
	return req
}

func (s *spy) seen(a *attempt, grant driver.Grant) {
	if grant.Hold != nil {
		s.h.change(func() {
			if a.hold != nil {
				a.earlier = append(a.earlier, a.hold)
			}
			a.hold = grant.Hold
		})
	}
}

// ask renews, releases or undoes the hold of a.
func (s *spy) ask(ctx context.Context, o op, a *attempt) error { return s.askFor(ctx, o, a, 0) }

// askFor is ask with the keep of opKeep.
func (s *spy) askFor(ctx context.Context, o op, a *attempt, keep time.Duration) error {
	c := &call{op: o, name: a.req.Name, of: a, keep: keep}
	_, err := s.do(ctx, c, func(ctx context.Context) (grant driver.Grant, err error) {
		switch o {
		case opRenew:
			grant.Validity, err = a.hold.Renew(ctx)
		case opRelease, opKeep:
			err = a.hold.Release(ctx, keep)
		default:
			err = a.hold.Undo(ctx)
		}
		return grant, err
	})
	return err
}

// simply makes a call that grants nothing.
func (s *spy) simply(ctx context.Context, c *call, f func(context.Context) error) error {
	_, err := s.do(ctx, c, func(ctx context.Context) (driver.Grant, error) { return driver.Grant{}, f(ctx) })
	return err
}

func (s *spy) raise(ctx context.Context, a *attempt, token uint64) {
	if r, ok := a.hold.(driver.TokenRaiser); ok {
		_ = s.simply(ctx, &call{op: opRaise, name: a.req.Name, of: a, token: token}, func(ctx context.Context) error {
			return r.RaiseToken(ctx, token)
		})
	}
}

// pass passes a's lock to next, if its service can do that.
func (s *spy) pass(ctx context.Context, a *attempt, next driver.Request, yield bool) {
	p, ok := a.hold.(driver.Passer)
	if !ok {
		return
	}
	n := s.h.attempt(s.who, next)
	c := &call{op: opPass, name: next.Name, of: a, next: n, yield: yield}
	grant, _ := s.do(ctx, c, func(ctx context.Context) (driver.Grant, error) {
		g, err := p.Pass(ctx, s.requested(n), yield)
		if err == nil && g.Hold != nil && g.Refused != nil {
			err = errBoth
		}
		return g, err
	})
	s.seen(n, grant)
}

// inspect asks for the state of a name. nil: the backend cannot, or the call failed.
func (s *spy) inspect(ctx context.Context, name string) *call {
	o, ok := s.Backend.(driver.Operator)
	if !ok {
		return nil
	}
	c := &call{op: opInspect, name: name}
	if s.simply(ctx, c, func(ctx context.Context) error {
		st, err := o.Inspect(ctx, name)
		s.h.change(func() { c.state = st })
		return err
	}) != nil {
		return nil
	}
	return c
}

// list asks for all names with a prefix, or for the first one.
func (s *spy) list(ctx context.Context, prefix string, first bool) {
	o, ok := s.Backend.(driver.Operator)
	if !ok {
		return
	}
	c := &call{op: opList, name: s.names[0], prefix: prefix}
	_ = s.simply(ctx, c, func(ctx context.Context) error {
		for st, err := range o.List(ctx, prefix) {
			if errors.Is(err, errors.ErrUnsupported) {
				s.h.change(func() { c.prefix = "" })
			}
			if err != nil {
				return err
			}
			if slices.Contains(s.names, st.Name) || len(st.Name) < len(prefix) || st.Name[:len(prefix)] != prefix {
				s.h.change(func() { c.listed = append(c.listed, st) })
			}
			if first {
				s.h.change(func() { c.prefix = "" })
				break
			}
		}
		return nil
	})
}

// breaks removes the holder that an Inspect has seen, or nobody.
func (s *spy) breaks(ctx context.Context, seen *call) {
	o, ok := s.Backend.(driver.Operator)
	if ok && seen != nil {
		_ = s.simply(ctx, &call{op: opBreak, name: seen.name, seen: seen}, func(ctx context.Context) error {
			return o.Break(ctx, seen.state)
		})
	}
}

// listen subscribes the client to wake-ups for a name. wake may be nil.
func (s *spy) listen(ctx context.Context, name string, wake func()) (stop func()) {
	n, ok := s.Backend.(driver.Notifier)
	if !ok {
		return func() {}
	}
	var unlisten func()
	ear := &call{op: opNotify, name: name}
	err := s.simply(ctx, ear, func(ctx context.Context) (err error) {
		unlisten, err = n.Notify(ctx, name, func() {
			s.h.happened(&call{op: opWake, who: s.who, name: name, seen: ear})
			if wake != nil {
				wake()
			}
		})
		if err == nil && unlisten == nil {
			err = errors.New("no error, and no stop")
		}
		return err
	})
	if err != nil {
		return func() {}
	}
	return sync.OnceFunc(func() {
		_ = s.simply(context.Background(), &call{op: opStop, name: name, seen: ear}, func(context.Context) error {
			unlisten()
			return nil
		})
	})
}

// close closes the backend twice, and asks it for a lock afterwards.
func (s *spy) close(ctx context.Context, name string, ttl time.Duration) {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	for range 2 {
		_ = s.simply(ctx, &call{op: opClose, name: name}, func(context.Context) error { return s.Close() })
	}
	a := s.h.attempt(s.who, driver.Request{Name: name, Owner: s.h.owner(name), TTL: ttl})
	_, _ = s.acquire(ctx, a, func() {})
}

// wait asks as the engine does, until it is granted or ctx ends, at most that many times. asked is
// called when it has learned that it must wait.
func (s *spy) wait(ctx context.Context, req driver.Request, poll time.Duration, asked func()) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer s.cancellable(&call{}, cancel)()
	wake := make(chan struct{}, 1)
	stop := s.listen(ctx, req.Name, func() {
		select {
		case wake <- struct{}{}:
		default:
		}
	})
	defer stop()
	var note *driver.Refusal
	var noted []*attempt
	defer func() {
		if note != nil {
			brief, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.patience)
			defer cancel()
			_ = s.simply(brief, &call{op: opLeave, name: req.Name, noted: noted}, note.Leave)
		}
	}()
	req.Wait = true
	for {
		req.Owner = s.h.owner(req.Name)
		a := s.h.attempt(s.who, req)
		grant, err := s.acquire(ctx, a, asked)
		if err == nil {
			note = nil
		}
		he := grant.Refused
		if he != nil && he.Leave != nil {
			note, noted = he, append(noted, a)
		}
		if !refused(err) || ctx.Err() != nil || s.isClosed() {
			return
		}
		asked()
		pause := poll
		if he != nil && he.Remaining > 0 {
			pause = min(pause, he.Remaining)
		}
		if he != nil && he.AskWithin > 0 {
			pause = min(pause, he.AskWithin*9/10)
		}
		select {
		case <-wake:
		case <-time.After(max(pause, time.Millisecond)):
			poll = min(2*poll, max(poll, time.Second))
		case <-ctx.Done():
			return
		}
	}
}
