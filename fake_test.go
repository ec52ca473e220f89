package locker_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/golockers/locker"
)

// fake is a lock service with a TTL, inside the test, whose every step a test
// can replace. Without replacements it behaves well: one owner per name,
// expiry, a queue-less "held" with the time that remains.
type fake struct {
	mu       sync.Mutex
	keys     map[string]*fakeKey
	tokens   uint64
	requests []locker.Request
	renewals int
	releases []string // owners, in the order of their releases
	inside   int      // calls of Acquire that have not returned

	queue      bool
	guarantees func(*locker.Guarantees)
	// before is called for each Acquire with its number from 1 on; an error
	// or a true second result is the answer then.
	before func(n int, ctx context.Context, req locker.Request) (locker.Grant, error, bool)
	renew  func(n int, ctx context.Context) error
	// release is asked before a release is carried out.
	release func(n int, ctx context.Context) error
	closed  int
}

type fakeKey struct {
	owner string
	until time.Time
}

func newFake() *fake { return &fake{keys: map[string]*fakeKey{}} }

func (f *fake) Guarantees() locker.Guarantees {
	g := locker.Guarantees{Backend: "fake", Scope: locker.ScopeProcess, Exclusion: locker.ExclusionServer,
		MinTTL: 100 * time.Millisecond, MaxTTL: time.Hour, Queue: f.queue}
	if f.guarantees != nil {
		f.guarantees(&g)
	}
	return g
}

func (f *fake) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed++
	return nil
}

func (f *fake) Acquire(ctx context.Context, req locker.Request) (locker.Grant, error) {
	f.mu.Lock()
	f.requests = append(f.requests, req)
	n := len(f.requests)
	f.inside++
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		f.inside--
		f.mu.Unlock()
	}()
	if f.before != nil {
		if g, err, done := f.before(n, ctx, req); done {
			return g, err
		}
	}
	return f.acquire(req)
}

// acquire is the well-behaved answer.
func (f *fake) acquire(req locker.Request) (locker.Grant, error) {
	now := time.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	if k := f.keys[req.Name]; k != nil && now.Before(k.until) {
		return locker.Grant{}, &locker.HeldError{Remaining: k.until.Sub(now)}
	}
	f.tokens++
	f.keys[req.Name] = &fakeKey{req.Owner, now.Add(req.TTL)}
	h := &fakeHold{f: f, req: req}
	h.undo.Sends(max(req.TTL, req.MinHold))
	h.undo.Sent(false)
	return locker.Grant{Hold: h, Validity: locker.Validity{Since: now, TTL: req.TTL}, Token: f.tokens}, nil
}

// hold is that of a request whose outcome is not known.
func (f *fake) hold(req locker.Request) *fakeHold {
	h := &fakeHold{f: f, req: req}
	h.undo.Sends(max(req.TTL, req.MinHold))
	h.undo.Sent(true)
	return h
}

// put makes somebody else hold name for so long.
func (f *fake) put(name string, ttl time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.keys[name] = &fakeKey{"somebody else", time.Now().Add(ttl)}
}

func (f *fake) remove(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.keys, name)
}

// owner returns who holds name, "" if nobody does.
func (f *fake) owner(name string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if k := f.keys[name]; k != nil && time.Now().Before(k.until) {
		return k.owner
	}
	return ""
}

func (f *fake) asked() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.requests)
}

func (f *fake) released() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.releases)
}

type fakeHold struct {
	f    *fake
	req  locker.Request
	undo locker.Undo
}

func (h *fakeHold) Undo(ctx context.Context) error { return h.undo.Undo(ctx, h.Release) }

func (h *fakeHold) Renew(ctx context.Context) (locker.Validity, error) {
	since := time.Now()
	h.undo.Sends(h.req.TTL)
	defer h.undo.Sent(false)
	h.f.mu.Lock()
	h.f.renewals++
	n := h.f.renewals
	h.f.mu.Unlock()
	if h.f.renew != nil {
		if err := h.f.renew(n, ctx); err != nil {
			return locker.Validity{}, err
		}
	}
	h.f.mu.Lock()
	defer h.f.mu.Unlock()
	k := h.f.keys[h.req.Name]
	if k == nil || k.owner != h.req.Owner || !time.Now().Before(k.until) {
		return locker.Validity{}, locker.ErrLost
	}
	k.until = time.Now().Add(h.req.TTL)
	return locker.Validity{Since: since, TTL: h.req.TTL}, nil
}

func (h *fakeHold) Release(ctx context.Context) error {
	h.f.mu.Lock()
	h.f.releases = append(h.f.releases, h.req.Owner)
	n := len(h.f.releases)
	h.f.mu.Unlock()
	if h.f.release != nil {
		if err := h.f.release(n, ctx); err != nil {
			return err
		}
	}
	h.f.mu.Lock()
	defer h.f.mu.Unlock()
	k := h.f.keys[h.req.Name]
	if k == nil || k.owner != h.req.Owner {
		return locker.ErrLost
	}
	delete(h.f.keys, h.req.Name)
	return nil
}

// As gives the request away, to look at.
func (h *fakeHold) As(target any) bool {
	p, ok := target.(*locker.Request)
	if ok {
		*p = h.req
	}
	return ok
}

// notifying is a fake that tells its waiters.
type notifying struct {
	*fake
	subscribed func() // called with each subscription
	mu         sync.Mutex
	wakes      map[int]func()
	n          int
}

func (f *notifying) Notify(_ context.Context, _ string, wake func()) (func(), error) {
	f.mu.Lock()
	f.n++
	n := f.n
	if f.wakes == nil {
		f.wakes = map[int]func(){}
	}
	f.wakes[n] = wake
	f.mu.Unlock()
	if f.subscribed != nil {
		f.subscribed()
	}
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.wakes, n)
	}, nil
}

func (f *notifying) wake() (listeners int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, w := range f.wakes {
		w()
	}
	return len(f.wakes)
}

var errDown = fmt.Errorf("connection refused: %w", locker.ErrUnavailable)

// hang waits for the context of a request, as a hanging service makes a
// backend do.
func hang(ctx context.Context) error {
	<-ctx.Done()
	return errors.Join(ctx.Err(), locker.ErrUnavailable)
}

// isDone reports whether the lease's Done is closed.
func isDone(l *locker.Lease) bool {
	select {
	case <-l.Done():
		return true
	default:
		return false
	}
}

// closing closes the client at the end of the test and fails it if that fails.
func closing(t *testing.T, c *locker.Client) *locker.Client {
	t.Helper()
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return c
}
