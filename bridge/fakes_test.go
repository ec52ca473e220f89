package bridge_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/bridge"
	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/locktest"
	"github.com/golockers/locker/internal/memlock"
)

// ttl is that of the tests on memory, whose time is not the machine's.
const ttl = 10 * time.Second

// fake is a service in memory that outlives those who close it. A test changes what it
// claims, and what it does with a request.
type fake struct {
	*memlock.Backend
	claims  func(*locker.Guarantees)
	acquire func(context.Context, driver.Request) (driver.Grant, error)
}

func (fake) Close() error { return nil }

func (f fake) Guarantees() locker.Guarantees {
	g := f.Backend.Guarantees()
	if f.claims != nil {
		f.claims(&g)
	}
	return g
}

func (f fake) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	if f.acquire != nil {
		return f.acquire(ctx, req)
	}
	return f.Backend.Acquire(ctx, req)
}

// answers makes it answer so for "job"; by other names the two services are told apart.
func (f *fake) answers(g driver.Grant, err error) {
	f.acquire = func(ctx context.Context, req driver.Request) (driver.Grant, error) {
		if req.Name != "job" {
			return f.Backend.Acquire(ctx, req)
		}
		return g, err
	}
}

func forever() fake  { return fake{Backend: memlock.New(false)} }
func expiring() fake { return fake{Backend: memlock.New(true)} }

func limited(shortest, longest time.Duration) driver.Backend {
	return fake{Backend: memlock.New(false), claims: func(g *locker.Guarantees) { g.MinTTL, g.MaxTTL = shortest, longest }}
}

// polled is a service without a queue and without messages. A request that waits for sharers leaves a
// note there, which keeps new ones out for a second. There is one note for all names.
type polled struct {
	m           *memlock.Backend
	mu          sync.Mutex
	note        string
	until       time.Time
	notes, left int
}

func newPolled() *polled { return &polled{m: memlock.New(true)} }

func (p *polled) Guarantees() locker.Guarantees {
	g := p.m.Guarantees()
	g.MaxMinHold = 0
	return g
}

func (p *polled) Close() error { return nil }

func (p *polled) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if rest := time.Until(p.until); req.Shared && rest > 0 {
		return driver.Grant{Refused: &driver.Refusal{Remaining: rest}}, nil
	}
	waits := req.Wait
	req.Wait = false
	g, err := p.m.Acquire(ctx, req)
	st, _ := p.m.Inspect(ctx, req.Name)
	switch {
	case req.Shared:
	case g.Hold != nil:
		p.until = time.Time{}
	case g.Refused != nil && waits && st.Sharers > 0:
		p.note, p.until = req.Owner, time.Now().Add(time.Second)
		p.notes++
		g.Refused = &driver.Refusal{Remaining: st.Remaining, AskWithin: 300 * time.Millisecond,
			Leave: func(context.Context) error {
				p.mu.Lock()
				defer p.mu.Unlock()
				if p.left++; p.note == req.Owner {
					p.until = time.Time{}
				}
				return nil
			}}
	}
	return g, err
}

// mute is a polled that says it would tell, and never does.
type mute struct{ *polled }

func (mute) Notify(context.Context, string, func()) (stop func(), err error) { return func() {}, nil }

// kinds are services with a queue and without one.
var kinds = map[string]func() driver.Backend{
	"queue":  func() driver.Backend { return expiring() },
	"polled": func() driver.Backend { return newPolled() },
}

func pairOf(t *testing.T, first, second driver.Backend) *locker.Client {
	t.Helper()
	return clientOf(t, locktest.Must(bridge.New(first, second)), "pair")
}

func clientOf(t *testing.T, b driver.Backend, label string) *locker.Client {
	t.Helper()
	return locktest.Client(t, b, &locker.Options{TTL: ttl, Label: label, OutageTimeout: -1})
}

// opens is the Opener of a Backend that is there already.
func opens(b driver.Backend) driver.Opener {
	return func(context.Context, *driver.URL, driver.Settings) (driver.Backend, error) { return b, nil }
}

func try(t *testing.T, c *locker.Client, name string, opts ...locker.Option) *locker.Lease {
	t.Helper()
	l, err := c.TryLock(t.Context(), name, opts...)
	require.NoError(t, err)
	return l
}

func unlock(t *testing.T, l *locker.Lease) {
	t.Helper()
	require.NoError(t, l.Unlock(t.Context()))
}

// isFree takes the lock on each of the services alone.
func isFree(t *testing.T, services ...driver.Backend) {
	t.Helper()
	for _, s := range services {
		unlock(t, try(t, clientOf(t, s, ""), "job"))
	}
}

// lockLater calls Lock on a goroutine of its own.
func lockLater(ctx context.Context, c *locker.Client, opts ...locker.Option) <-chan answer {
	in := make(chan answer, 1)
	go func() {
		l, err := c.Lock(ctx, "job", opts...)
		in <- answer{l, err}
	}()
	return in
}

type answer struct {
	*locker.Lease
	err error
}
