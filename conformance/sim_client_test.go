package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/golockers/locker"
)

// client is a Backend of the simulated service: the good one, unless the
// service has a flaw that is the client's to have.
type client struct {
	of     *service
	net    *network
	kind   kind
	closed chan struct{}
	alone  chan struct{} // for the flaw of doing one thing at a time; a mutex would stop virtual time

	mu     sync.Mutex
	gone   bool
	off    time.Duration // how far the wall clock of its machine is ahead
	tokens uint64        // for the flaw of counting them here
	beat   time.Time     // from when the session counts, where holds share one
	holds  map[*hold]bool
	wakers map[string]map[*func()]struct{}
}

func newClient(s *service, k kind) *client {
	c := &client{
		of: s, net: &network{hasty: k.hasty}, kind: k, closed: make(chan struct{}),
		alone:  make(chan struct{}, 1),
		wakers: make(map[string]map[*func()]struct{}),
	}
	if s.flaw != missedNotTold {
		c.net.mended = c.wakeAll
	}
	c.net.fragile = s.flaw == neverReconnects
	c.net.patient = s.flaw == requestsUnbounded
	s.do(func() { s.clients[c] = struct{}{} })
	if s.flaw == leaksGoroutine {
		go func() { <-s.end }()
	}
	return c
}

func (c *client) service() *service { return c.of }

// Acquire asks once, or waits in the queue if there is one.
func (c *client) Acquire(ctx context.Context, req locker.Request) (locker.Grant, error) {
	s := c.service()
	asked := ctx
	if s.flaw == ignoresContext || s.flaw == promisesPrompt {
		ctx = s.stubborn(ctx)
	}
	if s.flaw == oneAtATime {
		c.alone <- struct{}{}
		defer func() { <-c.alone }()
	}
	if c.isClosed() && s.flaw != closeForgets {
		return locker.Grant{}, locker.ErrClosed
	}
	if err := ctx.Err(); err != nil {
		if s.flaw == sendsWhenCancelled {
			_, _ = c.ask(s.stubborn(ctx), req)
		}
		return locker.Grant{}, err
	}
	if s.flaw == waitsOn {
		ctx = s.stubborn(ctx)
	}
	grant, err := c.wait(ctx, req)
	switch {
	case err == nil && s.flaw == holdDiesWithContext:
		context.AfterFunc(asked, func() { _, _ = s.release(req.Name, req.Owner) })
	case err != nil && (s.flaw == leavesGhost ||
		s.flaw == ghostAfterReset && errors.Is(err, locker.ErrUnavailable)):
		grant = locker.Grant{}
	case s.flaw == timeoutIsHeld && errors.Is(err, context.DeadlineExceeded):
		err = locker.ErrHeld
	case s.flaw == outageIsHeld && errors.Is(err, locker.ErrUnavailable):
		err = locker.ErrHeld
	case s.flaw == vagueRefusal && errors.Is(err, locker.ErrHeld):
		err = errors.New("busy")
	case s.flaw == holdBesideRefusal && errors.Is(err, locker.ErrHeld):
		grant.Hold = &hold{client: c, name: req.Name, place: c.place(req), ctx: asked}
	}
	return grant, err
}

// wait asks, and while it waits, asks again when it was woken, and often
// enough to keep its place.
func (c *client) wait(ctx context.Context, req locker.Request) (locker.Grant, error) {
	s := c.service()
	waits := req.Wait && c.kind.queued || s.flaw == tryWaits
	if s.flaw == pilesUp {
		go func() { <-c.closed }()
	}
	if s.flaw == asciiNames && strings.ContainsFunc(req.Name, func(r rune) bool { return r > '~' }) {
		return locker.Grant{}, errors.New("invalid name")
	}
	wake := make(chan struct{}, 1)
	stop := c.listen(req.Name, func() {
		select {
		case wake <- struct{}{}:
		default:
		}
	})
	defer stop()
	known := false // that the lock is held
	for {
		grant, err := c.ask(ctx, req)
		if known && err != nil && ctx.Err() != nil && s.flaw != hidesHeld {
			err = fmt.Errorf("%w: %w", locker.ErrHeld, err)
		}
		known = errors.Is(err, locker.ErrHeld)
		if !waits || !errors.Is(err, locker.ErrHeld) {
			return grant, err
		}
		if req.Queued != nil && s.flaw != silentQueue {
			req.Queued()
		}
		poll := time.NewTimer(req.TTL / 4)
		if s.flaw == forgetsWaiters {
			poll.Stop() // and the service does not tell
		}
		select {
		case <-wake:
		case <-poll.C:
		case <-ctx.Done():
			err = fmt.Errorf("%w: %w", locker.ErrHeld, ctx.Err())
			switch s.flaw {
			case hidesHeld:
				err = ctx.Err()
			case hidesWhy:
				err = locker.ErrHeld
			case hidesCancel:
				err = errors.New("interrupted")
			}
			// The lock may have been handed over at this very moment.
			return locker.Grant{Hold: &hold{client: c, name: req.Name, place: c.place(req), ctx: ctx}}, err
		case <-c.closed:
			return locker.Grant{}, locker.ErrClosed
		}
		poll.Stop()
	}
}

func (c *client) place(req locker.Request) place {
	return place{owner: req.Owner, label: req.Label, waits: req.Wait, shared: req.Shared, ttl: req.TTL,
		minHold: req.MinHold, client: c, lost: req.Lost}
}

// ask sends one request.
func (c *client) ask(ctx context.Context, req locker.Request) (locker.Grant, error) {
	s := c.service()
	h := &hold{client: c, name: req.Name, place: c.place(req), ctx: ctx, since: time.Now()}
	switch s.flaw {
	case overflowsTTL:
		h.place.ttl = time.Duration(int32(req.TTL/time.Millisecond)) * time.Millisecond
	case shortensTTL:
		h.place.ttl = req.TTL / 2
	case refusesOwner:
		if len(req.Owner) > 32 {
			return locker.Grant{}, errors.New("value too long")
		}
	case namesByClient:
		h.name += fmt.Sprintf("%p", c)
	}
	h.undo.Sends(max(req.TTL, req.MinHold))
	late := true
	defer func() { h.undo.Sent(late) }()
	if err := c.queueForRow(ctx, h.name); err != nil {
		return locker.Grant{Hold: h}, err
	}
	limited, cancel := ctx, func() {}
	if s.flaw == slownessIsHeld {
		limited, cancel = context.WithTimeout(ctx, time.Second)
	}
	answer, err := c.acquireIn(limited, h, req.Wait && c.kind.queued)
	cancel()
	switch {
	case err != nil && limited.Err() != nil && ctx.Err() == nil && s.flaw == slownessIsHeld:
		return locker.Grant{Hold: h}, locker.ErrHeld
	case err != nil && s.flaw == grantMadeUp:
		return locker.Grant{Hold: h, Validity: c.validity(h.since, h.place.ttl)}, nil
	case err != nil && s.flaw == vagueOutage && errors.Is(err, locker.ErrUnavailable):
		return locker.Grant{Hold: h}, errors.New("EOF")
	case err != nil:
		return locker.Grant{Hold: h}, err
	}
	v := answer.(verdict)
	late = false
	if v.granted {
		c.keepRow(h.name, grantUncommitted)
	} else {
		c.keepRow(h.name, refusalUncommitted)
	}
	switch {
	case v.err != nil:
		return locker.Grant{Hold: h}, v.err
	case !v.granted:
		if s.flaw == remainsTooLong {
			v.remaining *= 1000
		}
		held := &locker.HeldError{Remaining: v.remaining}
		if v.note {
			held = c.noted(h, held)
		}
		return locker.Grant{}, held
	case req.Shared && c.kind.sharing == locker.SharingTokenless && s.flaw != sharerTokenUnclaimed:
		v.token = 0
	case !c.kind.fenced && s.flaw != tokenUnclaimed, s.flaw == tokenMissing:
		v.token = 0
	case s.flaw == tokenTooHigh:
		v.token |= 1 << 63
	case s.flaw == tokenOfClient:
		c.mu.Lock()
		c.tokens++
		v.token = c.tokens
		c.mu.Unlock()
	}
	switch s.flaw {
	case sinceFromWait:
		if req.Wait {
			h.since = time.Now()
		}
	case sinceFromReply:
		h.since = time.Now()
	case sharerSinceReply:
		if req.Shared {
			h.since = time.Now()
		}
	case sinceFuture:
		h.since = time.Now().Add(time.Second)
	}
	return locker.Grant{Hold: h, Validity: c.validity(h.since, h.place.ttl), Token: v.token}, nil
}

func (c *client) validity(since time.Time, ttl time.Duration) locker.Validity {
	switch c.service().flaw {
	case boastsTTL:
		ttl *= 2
	case negativeDrift:
		return locker.Validity{Since: since, TTL: ttl, Drift: -ttl / 5}
	case noDeadline:
		ttl = 0
	}
	return locker.Validity{Since: since, TTL: ttl}
}

func (c *client) isClosed() bool {
	select {
	case <-c.closed:
		return true
	default:
		return false
	}
}

// Close ends all waits.
func (c *client) Close() error {
	s := c.service()
	if s.flaw == closeHangs && c.net.isCut() {
		<-s.end
	}
	if s.flaw == closesUsers {
		c.net.end()
	}
	c.mu.Lock()
	first := !c.gone
	c.gone = true
	c.mu.Unlock()
	switch {
	case !first && s.flaw == closeTwiceFails:
		return errors.New("use of closed connection")
	case !first && s.flaw != closeTwicePanics:
		return nil
	}
	close(c.closed)
	s.do(func() {
		delete(s.clients, c)
		for name := range s.shares {
			s.diedSharing(name, c, c.kind.queued && s.flaw != keepsSession)
		}
		for name, rec := range s.locks { // its session's
			if c.kind.queued && rec.client == c && s.flaw != keepsSession {
				s.remove(name)
			}
		}
	})
	return nil
}
