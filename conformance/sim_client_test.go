package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/golockers/locker"
	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/refusal"
)

// client is a Backend of the simulated service: the good one, unless the service has a flaw that is the
// client's to have.
type client struct {
	*service
	net    *network
	kind   kind
	closed chan struct{}
	alone  chan struct{} // for the flaw of doing one thing at a time; a mutex would stop virtual time
	slots  chan struct{} // for the flaw of waiting in a pool of requests
	off    time.Duration // how far the wall clock of its machine is ahead

	own      sync.Mutex
	gone     bool
	tokens   uint64             // for the flaw of counting them here
	numbered []string           // of holds, for the flaw of numbering them
	wakers   map[*func()]string // names
}

func newClient(s *service, k kind) *client {
	c := &client{service: s, net: &network{hasty: k.hasty}, kind: k, closed: make(chan struct{}),
		alone: make(chan struct{}, 1), slots: make(chan struct{}, 256), wakers: map[*func()]string{}}
	c.net.fragile, c.net.patient = s.flaw == neverReconnects, s.flaw == requestsUnbounded
	c.net.mended = func() {
		if s.flaw != missedNotTold {
			c.wake("")
		}
	}
	s.do(func() { s.clients[c] = true })
	if s.flaw == leaksGoroutine {
		go func() { <-s.end }()
	}
	return c
}

// stubborn returns a context that does not end with ctx, but with the test.
func (s *service) stubborn(ctx context.Context) context.Context {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	go func() {
		<-s.end
		cancel()
	}()
	return ctx
}

// ask sends a request about a name, which op carries out in the service.
func ask[A any](ctx context.Context, c *client, name string, op func(l *lock) A) (answer A, err error) {
	a, err := c.net.call(ctx, func() (reply any) {
		c.do(func() {
			if reply = errBroken; !c.down {
				reply = op(c.look(name))
			}
		})
		return reply
	})
	answer, _ = a.(A)
	return answer, err
}

// Acquire asks once, or waits in the queue if there is one.
func (c *client) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	asked := ctx
	if c.flaw == ignoresContext || c.flaw == promisesPrompt {
		ctx = c.stubborn(ctx)
	}
	if c.flaw == oneAtATime {
		c.alone <- struct{}{}
		defer func() { <-c.alone }()
	}
	if c.isClosed() && c.flaw != closeForgets {
		return driver.Grant{}, locker.ErrClosed
	}
	if err := ctx.Err(); err != nil {
		if c.flaw == sendsWhenCancelled {
			_, _ = c.ask(c.stubborn(ctx), req)
		}
		return driver.Grant{}, err
	}
	if c.flaw == promptLater {
		time.Sleep(150 * time.Millisecond)
	}
	if c.flaw == waitsOn {
		ctx = c.stubborn(ctx)
	}
	grant, err := c.wait(ctx, req)
	outage, held := errors.Is(err, locker.ErrUnavailable), errors.Is(err, locker.ErrHeld)
	switch {
	case err == nil && c.flaw == holdDiesWithContext:
		context.AfterFunc(asked, func() { c.do(func() { c.release(c.look(req.Name), req.Owner) }) })
	case err != nil && (c.flaw == leavesGhost || c.flaw == ghostAfterReset && outage):
		grant = driver.Grant{}
	case err != nil && c.flaw == hidesByCause && asked.Err() != nil:
		err = context.Cause(asked)
	case outage && c.flaw == outageIsHeld, errors.Is(err, context.DeadlineExceeded) && c.flaw == timeoutIsHeld:
		err = locker.ErrHeld
	case held && c.flaw == vagueRefusal:
		err = errors.New("busy")
	case held && c.flaw == holdBesideRefusal:
		grant.Hold = c.hold(asked, req)
	}
	return grant, err
}

func (c *client) hold(ctx context.Context, req driver.Request) *hold {
	h := &hold{place: place{Request: req, client: c}, ctx: ctx, since: time.Now()}
	h.Lost = func() { h.gone.Store(true); req.Lost() }
	c.own.Lock()
	defer c.own.Unlock()
	h.number = uint8(len(c.numbered)) //nolint:gosec // the flaw
	c.numbered = append(c.numbered, req.Name)
	return h
}

// wait asks, and while it waits, asks again when it was woken, and often enough to keep its place.
func (c *client) wait(ctx context.Context, req driver.Request) (driver.Grant, error) {
	waits := req.Wait && c.kind.queued || c.flaw == tryWaits
	if c.flaw == pilesUp {
		go func() { <-c.closed }()
	}
	if c.flaw == asciiNames && strings.ContainsFunc(req.Name, func(r rune) bool { return r > '~' }) {
		return driver.Grant{}, errors.New("invalid name")
	}
	wake := make(chan struct{}, 1)
	defer c.listen(req.Name, func() {
		select {
		case wake <- struct{}{}:
		default:
		}
	})()
	if c.flaw == waitsTakeRequests {
		c.slots <- struct{}{}
		defer func() { <-c.slots }()
	}
	if c.flaw == hurryTakesRequests {
		select {
		case c.slots <- struct{}{}:
		case <-ctx.Done():
			return driver.Grant{}, ctx.Err()
		}
		defer func() {
			if end, ends := ctx.Deadline(); !ends || time.Until(end) > 2*time.Millisecond {
				<-c.slots
			}
		}()
	}
	known := false // that the lock is held
	for {
		grant, err := c.ask(ctx, req)
		if known && err != nil && ctx.Err() != nil && c.flaw != hidesHeld {
			err = fmt.Errorf("%w: %w", locker.ErrHeld, err)
		}
		known = errors.Is(err, locker.ErrHeld)
		if !waits || !known {
			return grant, err
		}
		if req.Queued != nil && c.flaw != silentQueue {
			req.Queued()
		}
		poll := time.NewTimer(req.TTL / 4)
		if c.flaw == forgetsWaiters {
			poll.Stop() // and the service does not tell
		}
		select {
		case <-wake:
		case <-poll.C:
		case <-ctx.Done():
			err = fmt.Errorf("%w: %w", locker.ErrHeld, ctx.Err())
			switch c.flaw {
			case hidesHeld:
				err = ctx.Err()
			case hidesCancel:
				err = errors.New("interrupted")
			}
			// The lock may have been handed over at this very moment.
			return driver.Grant{Hold: c.hold(ctx, req)}, err
		case <-c.closed:
			if c.flaw == closeIsHeld {
				return driver.Grant{}, fmt.Errorf("%w: %w", locker.ErrHeld, context.Canceled)
			}
			if c.flaw == closeIsOutage {
				return driver.Grant{}, locker.ErrUnavailable
			}
			return driver.Grant{}, locker.ErrClosed
		}
		poll.Stop()
	}
}

// ask sends one request.
func (c *client) ask(ctx context.Context, req driver.Request) (driver.Grant, error) {
	h := c.hold(ctx, req)
	switch c.flaw {
	case overflowsTTL:
		h.TTL = time.Duration(int32(req.TTL/time.Millisecond)) * time.Millisecond
	case shortensTTL:
		h.TTL = req.TTL / 2
	case refusesOwner:
		return driver.Grant{}, errors.New("value too long")
	case refusesLeast:
		if req.TTL <= c.Guarantees().MinTTL {
			return driver.Grant{}, errors.New("too short")
		}
	case namesByClient:
		h.Name += fmt.Sprintf("%p", c)
	}
	lasts := max(req.TTL, req.MinHold)
	if c.flaw == undoesTooEarly {
		lasts = req.TTL
	}
	h.undo.Sends(lasts)
	late := true
	defer func() { h.undo.Sent(late) }()
	v, err := c.acquireIn(ctx, h, req.Wait && c.kind.queued)
	switch {
	case err == nil:
	case c.flaw == grantMadeUp:
		return driver.Grant{Hold: h, Validity: c.validity(h.since, h.TTL)}, nil
	case c.flaw == vagueOutage && errors.Is(err, locker.ErrUnavailable):
		return driver.Grant{Hold: h}, errors.New("EOF")
	default:
		return driver.Grant{Hold: h}, err
	}
	late = false
	switch {
	case v.err != nil:
		return driver.Grant{Hold: h}, v.err
	case !v.granted:
		if c.flaw == remainsTooLong {
			v.remaining *= 1000
		}
		held := &refusal.Error{Refusal: driver.Refusal{Remaining: v.remaining}}
		if v.note {
			held = c.noted(h, held)
		}
		return driver.Grant{}, held
	case req.Shared && c.kind.sharing == locker.SharingTokenless && c.flaw != sharerTokenUnclaimed,
		!c.kind.fenced && c.flaw != tokenUnclaimed, c.flaw == tokenMissing:
		v.token = 0
	case c.flaw == tokenTooHigh:
		v.token |= 1 << 63
	case c.flaw == tokenOfClient:
		c.own.Lock()
		c.tokens++
		v.token = c.tokens
		c.own.Unlock()
	}
	switch {
	case c.flaw == sinceFromWait && req.Wait, c.flaw == sharerSinceReply && req.Shared, c.flaw == sinceFromReply:
		h.since = time.Now()
	case c.flaw == sinceFuture:
		h.since = time.Now().Add(time.Second)
	}
	return driver.Grant{Hold: h, Validity: c.validity(h.since, h.TTL), Token: v.token}, nil
}

// acquireIn sends what makes an acquire: one request, or with a flaw two, of which the second builds on the
// reply to the first.
func (c *client) acquireIn(ctx context.Context, h *hold, wait bool) (verdict, error) {
	whole := func(l *lock) verdict { return c.acquire(l, h.place, wait) }
	grant := func(l *lock) verdict { return verdict{granted: true, token: c.grant(l, h.place).token} }
	switch {
	case c.flaw == sharesInTwoSteps && h.Shared, c.flaw == acquireInTwoSteps:
		free, err := ask(ctx, c, h.Name, func(l *lock) bool {
			out, _ := c.keptOut(l, h.place)
			return !out && len(c.inTheWay(l, h.place)) == 0
		})
		if err != nil {
			return verdict{}, err
		}
		if free {
			return ask(ctx, c, h.Name, grant)
		}
	case c.flaw == tokenLater:
		first, err := ask(ctx, c, h.Name, whole)
		if err != nil || !first.granted {
			return first, err
		}
		return ask(ctx, c, h.Name, func(l *lock) verdict { l.token++; return verdict{granted: true, token: l.token} })
	case c.flaw == expiryInTwoSteps:
		forever := h.place
		forever.TTL *= 1000
		first, err := ask(ctx, c, h.Name, func(l *lock) verdict { return c.acquire(l, forever, wait) })
		if err == nil && first.granted {
			_, err = ask(ctx, c, h.Name, func(l *lock) bool { return c.renew(l, h.place) })
		}
		return first, err
	}
	return ask(ctx, c, h.Name, whole)
}

func (c *client) validity(since time.Time, ttl time.Duration) driver.Validity {
	switch c.flaw {
	case boastsTTL:
		ttl *= 2
	case negativeDrift:
		return driver.Validity{Since: since, TTL: ttl, Drift: -ttl / 5}
	case noDeadline:
		ttl = 0
	}
	return driver.Validity{Since: since, TTL: ttl}
}

// noted is what a refused writer is told of its note.
func (c *client) noted(h *hold, held *refusal.Error) *refusal.Error {
	held.AskWithin = noteLasts / 3
	if c.flaw == asksTooLate {
		held.AskWithin = 2 * noteLasts
	}
	held.Leave = func(ctx context.Context) error {
		_, err := ask(ctx, c, h.Name, func(l *lock) bool {
			switch c.flaw {
			case leaveForgets:
				return false
			case leaveOpens:
				clear(l.notes)
			}
			delete(l.notes, c.noteOf(h.place))
			if c.flaw != leaveSilent {
				c.tell(l)
			}
			return true
		})
		if c.flaw == leaveFails {
			err = errBroken
		}
		return err
	}
	return held
}

func (c *client) isClosed() bool {
	select {
	case <-c.closed:
		return true
	default:
		return false
	}
}

// Close ends all waits, and the session if there is one.
func (c *client) Close() error {
	if c.flaw == closeHangs && c.net.isCut() {
		<-c.end
	}
	if c.flaw == closesUsers {
		c.net.end()
	}
	c.own.Lock()
	first := !c.gone
	c.gone = true
	c.own.Unlock()
	switch {
	case !first && c.flaw == closeTwiceFails:
		return errors.New("use of closed connection")
	case !first && c.flaw != closeTwicePanics:
		return nil
	}
	close(c.closed)
	c.do(func() {
		delete(c.clients, c)
		if c.kind.queued && c.flaw != keepsSession {
			c.ended(c)
		}
	})
	return nil
}

// listen arranges for wake to be called when the service tells of name.
func (c *client) listen(name string, wake func()) (stop func()) {
	c.own.Lock()
	defer c.own.Unlock()
	c.wakers[&wake] = name
	return func() {
		c.own.Lock()
		defer c.own.Unlock()
		delete(c.wakers, &wake)
	}
}

// wake wakes those who listen for name; "": everybody, who may have missed something.
func (c *client) wake(name string) {
	c.own.Lock()
	defer c.own.Unlock()
	for wake, heard := range c.wakers {
		if name == "" || c.key(heard) == name {
			(*wake)()
			if c.flaw == wakesOne && name != "" {
				break
			}
		}
	}
}

type notifier struct{ c *client }

// Notify subscribes. The simulated service tells everything to everybody, so that there is nothing to ask for
// but whether it is there.
func (n notifier) Notify(ctx context.Context, name string, wake func()) (func(), error) {
	c, nothing := n.c, func() {}
	if c.flaw == subscribesLate {
		time.AfterFunc(50*time.Millisecond, func() { c.listen(name, wake) })
		return nothing, nil
	}
	stop := c.listen(name, wake)
	asks := func(ctx context.Context) error {
		_, err := c.net.call(ctx, func() any { return nil })
		return err
	}
	if err := asks(ctx); err != nil || c.flaw == subscribesToNothing {
		stop()
		return nothing, err
	}
	switch c.flaw {
	case stopWaits:
		return func() { stop(); _ = asks(context.Background()) }, nil
	case stopsNothing:
		return nil, nil
	case notifyFails:
		return stop, errBroken
	}
	return stop, nil
}
