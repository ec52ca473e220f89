package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/golockers/locker"
)

// state is how the holds of a trial come about, and with that what its clients and
// names have been through: mistakes live in the second state.
type state string

const (
	fresh     state = ""           // by the first request for a name that nobody had
	afterWait state = "waited for" // by a client that was refused while another held the name
	together  state = "shared"     // as afterWait, with Shared
	afterPass state = "passed on"  // by a Pass of another caller of the same client
)

// statesOf returns the states that holds of the service can be in.
func (h Harness) statesOf(t T) []state {
	b := h.New(t)
	defer func() { _ = b.Close() }()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	ttl := max(h.ttlOrDefault(), b.Guarantees().MinTTL)
	grant, err := b.Acquire(ctx, locker.Request{Name: "conformance-" + owner(), Owner: owner(),
		TTL: ttl, Lost: func() {}})
	states := []state{fresh, afterWait}
	if b.Guarantees().Shared != locker.SharingNone {
		states = append(states, together)
	}
	if _, ok := grant.Hold.(locker.Passer); ok && err == nil {
		states = append(states, afterPass)
	}
	if grant.Hold != nil {
		_ = grant.Hold.Release(ctx)
	}
	return states
}

// held is a request of the holder that a check looks at, in the trial's state; requests of
// others, whom it is to keep out, are as they are.
func (s *trial) held(req locker.Request) locker.Request {
	req.Shared = s.state == together
	return req
}

// opts is held for what a Client is asked.
func (s *trial) opts(opts ...locker.Option) []locker.Option {
	if s.state == together {
		opts = append(slices.Clip(opts), locker.Shared())
	}
	return opts
}

// experienced gives b what the state of the trial has been through.
func (s *trial) experienced(b locker.Backend) locker.Backend {
	if s.state != fresh {
		grant, _ := s.get(s.within(s.patience()), b,
			s.request(s.name(fmt.Sprintf("before-%d", s.number())), s.long))
		if grant.Hold != nil {
			_ = grant.Hold.Release(s.within(s.patience()))
		}
	}
	return b
}

// get acquires a name that nobody has, in the trial's state. What goes wrong on the
// way there is left to the trial that is fresh.
func (s *trial) get(ctx context.Context, b locker.Backend, req locker.Request) (locker.Grant, error) {
	req = s.held(req)
	switch s.state {
	case afterWait, together:
		if before, err := s.earlier.Acquire(ctx, s.request(req.Name, s.long)); err == nil {
			return s.getAfter(ctx, before.Hold, b, req)
		}
	case afterPass:
		first, err := b.Acquire(ctx, s.request(req.Name, s.long))
		if p, ok := first.Hold.(locker.Passer); ok && err == nil {
			return p.Pass(ctx, req, false)
		}
	}
	return b.Acquire(ctx, req)
}

// tryAfter is get with a Client.
func (s *trial) tryAfter(c *locker.Client, name string, opts []locker.Option) (l *locker.Lease, err error) {
	var free func(context.Context) error
	switch s.state {
	case afterWait, together:
		if before, err := s.earlier.Acquire(s.within(s.patience()), s.request(name, s.long)); err == nil {
			free = before.Hold.Release
		}
	case afterPass:
		if before, err := s.tryLock(c, name, locker.TTL(s.long)); err == nil {
			free = before.Unlock
		}
	}
	if free == nil {
		return s.tryLock(c, name, s.opts(opts...)...)
	}
	was, got := c.Stats(), make(chan struct{}, 1)
	s.spawn(func() {
		l, err = c.Lock(s.within(s.patience()), name, s.opts(opts...)...)
		got <- struct{}{}
	})
	s.eventually(s.patience(), func() bool { return c.Stats().Waiting > was.Waiting || len(got) > 0 })
	if s.state != afterPass {
		s.eventually(settle/4, func() bool { return c.Stats().Refused > was.Refused })
	}
	_ = free(s.within(s.patience()))
	<-got
	s.mu.Lock()
	s.refused[c] = c.Stats().Refused
	s.mu.Unlock()
	return l, err
}

// getAfter is refused as long as there is an earlier holder, or waits in the queue
// until it releases.
func (s *trial) getAfter(ctx context.Context, before locker.Hold, b locker.Backend,
	req locker.Request) (locker.Grant, error) {
	type answer struct {
		grant locker.Grant
		err   error
	}
	answers, queued := make(chan answer, 1), make(chan struct{}, 1)
	waits := req
	waits.Wait = true
	waits.Queued = func() {
		select {
		case queued <- struct{}{}:
		default:
		}
	}
	if !b.Guarantees().Queue {
		waits.Owner = owner() // refused, as a rule; the engine asks again with another
	}
	s.spawn(func() {
		grant, err := b.Acquire(ctx, waits)
		answers <- answer{grant, err}
	})
	var a answer
	select {
	case a = <-answers:
	case <-queued:
	case <-time.After(settle / 4):
	}
	_ = before.Release(ctx)
	if a == (answer{}) {
		a = <-answers
	}
	if a.err == nil && a.grant.Hold != nil && waits.Owner != req.Owner { // it waits, although it claims no queue
		_ = a.grant.Hold.Release(ctx)
		return b.Acquire(ctx, req)
	}
	if errors.Is(a.err, locker.ErrHeld) {
		s.eventually(s.soon, func() bool { // the earlier hold may still be on its way out
			a.grant, a.err = b.Acquire(ctx, req)
			return !errors.Is(a.err, locker.ErrHeld)
		})
	}
	return a.grant, a.err
}
