package locker

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"time"
)

// attempt asks the service once, with an owner of its own (R10), and makes a
// lease of the answer.
func (h *head) attempt(ctx context.Context) (*Lease, error) {
	c := h.client
	l := &Lease{client: c, name: h.name, settings: h.settings}
	if c.tracing {
		l.ctx = context.WithoutCancel(ctx)
	}
	began := time.Now()
	// Close waits for what is counted here: until then a lock that was granted is
	// either held, or on its way back.
	c.asking.add()
	grant, err := c.ask(ctx, l, Request{
		Name:    h.line.name,
		Owner:   newOwner(),
		Label:   c.opts.Label,
		TTL:     h.settings.ttl,
		MinHold: h.settings.minHold,
		Wait:    h.wait,
		Lost:    l.goneByService,

		Queued: func() { c.lines.toldHeld(h.line) },
	})
	if err == nil {
		err = h.grant(l, grant)
	}
	c.asking.done()
	c.attempted(l.ctx, h.name, time.Since(began), err)
	if err != nil {
		return nil, err
	}
	return l, nil
}

// grant makes l a lease that is held, or says why it cannot be used; what was
// granted is taken back then.
func (h *head) grant(l *Lease, g Grant) error {
	c := h.client
	now := time.Now()
	l.hold, l.token, l.start = g.Hold, g.Token, now
	if d := l.settings.minHold; d != 0 {
		l.keep = now.Add(d + drift(d))
	}
	err := ErrClosed
	if c.lines.hold(h.line, l) {
		if err = h.begin(l, g, now); err == nil {
			return nil
		}
		c.lines.drop(h.line)
	}
	c.schedule.remove(l)
	l.keep = time.Time{} // nobody was told that it holds
	c.takeBackAt(now, l, g.Hold, false)
	return err
}

// begin checks what was granted and starts the lease.
func (h *head) begin(l *Lease, g Grant, now time.Time) error {
	if err := g.Validity.check(); err != nil {
		return err
	}
	if g.Token > MaxToken {
		return fmt.Errorf("backend %s gave token %d, and the highest is %d: a fault of the backend", h.client.guarantees.Backend, g.Token, uint64(MaxToken))
	}
	if g.Token != 0 {
		l.token += h.client.opts.TokenBase // cannot overflow: each is at most MaxToken
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case errors.Is(l.err, ErrClosed):
		return ErrClosed
	case l.err != nil:
		return fmt.Errorf("granted and at once gone again: %w", ErrUnavailable)
	}
	l.extend(g.Validity, now)
	if l.overdue(now) {
		l.err = ErrLost
		return fmt.Errorf("granted, but its lease of %v is over since %v: the answer took too long: %w", g.Validity.TTL, now.Sub(l.until), ErrUnavailable)
	}
	l.granted, l.line = true, h.line
	return nil
}

// answer is what Acquire returned.
type answer struct {
	grant Grant
	err   error
}

// lastWord is how long a backend may take to say, after its context ended,
// what it knows of the lock. The caller waits no longer than that (R8).
const lastWord = 100 * time.Millisecond

// ask calls Acquire. If it is not known to return in time, ask leaves it alone
// when ctx or the client ends first; what it then brings is taken back.
func (c *Client) ask(ctx context.Context, l *Lease, req Request) (Grant, error) {
	if c.isClosed() {
		return Grant{}, ErrClosed // Close may not have seen the count, and have closed the backend
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var a answer
	if c.prompt {
		stop := context.AfterFunc(c.life, func() { cancel(ErrClosed) })
		a = c.call(ctx, l, req)
		stop()
	} else {
		a = c.callAside(ctx, cancel, l, req)
	}
	if c.isClosed() {
		if a.err == nil {
			c.takeBackAt(time.Now(), l, a.grant.Hold, false)
		}
		return Grant{}, ErrClosed
	}
	return a.grant, a.err
}

// call calls Acquire, and has taken back what it may have left.
func (c *Client) call(ctx context.Context, l *Lease, req Request) (a answer) {
	a.grant, a.err = c.backend.Acquire(ctx, req)
	if a.err == nil && a.grant.Hold == nil {
		a.err = errors.New("the backend granted nothing: its Grant has no Hold")
	}
	if a.err != nil && a.grant.Hold != nil {
		c.takeBackAt(time.Now(), l, a.grant.Hold, true)
		a.grant = Grant{}
	}
	return a
}

// callAside is call in a goroutine of its own, which is left behind if it is
// late.
func (c *Client) callAside(ctx context.Context, cancel context.CancelCauseFunc, l *Lease, req Request) answer {
	reply := newHandover[answer]()
	c.asking.add()
	go func() {
		defer c.asking.done()
		a := c.call(ctx, l, req)
		if !reply.deliver(a) && a.err == nil {
			c.takeBackAt(time.Now(), l, a.grant.Hold, false)
		}
	}()
	select {
	case a := <-reply.value:
		return a
	case <-c.life.Done():
		cancel(ErrClosed)
	case <-ctx.Done():
	}
	timer := time.NewTimer(lastWord)
	defer timer.Stop()
	select {
	case a := <-reply.value:
		return a
	case <-timer.C:
	}
	a, delivered := reply.leave()
	if !delivered {
		a.err = ctxError(ctx)
	}
	return a
}

// newOwner returns 20 random bytes in hexadecimal digits.
func newOwner() string {
	var b [20]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}
