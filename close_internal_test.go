package locker

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// shutting is a service with one lock, which can do nothing more once it is
// closed.
type shutting struct {
	prompt  bool
	answers time.Duration // how long each takes

	mu     sync.Mutex
	held   bool
	closed bool
	late   int // requests after Close
}

func (s *shutting) open(t *testing.T) *Client {
	t.Helper()
	c, err := Openers{"x": func(context.Context, *URL, Options) (Backend, error) {
		return s, nil
	}}.Open(t.Context(), "x://", nil)
	require.NoError(t, err)
	return c
}

func (s *shutting) Prompt() bool           { return s.prompt }
func (s *shutting) Guarantees() Guarantees { return Guarantees{Backend: "shutting"} }

func (s *shutting) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return nil
}

// answer makes held what it is to be, unless Close came before the answer.
func (s *shutting) answer(held bool) error {
	time.Sleep(s.answers)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		s.late++
		return errors.Join(errors.New("the connection is closed"), ErrUnavailable)
	}
	s.held = held
	return nil
}

func (s *shutting) Acquire(_ context.Context, req Request) (Grant, error) {
	if err := s.answer(true); err != nil {
		return Grant{}, err
	}
	return Grant{Hold: s, Validity: Validity{Since: time.Now(), TTL: req.TTL}}, nil
}

func (s *shutting) Renew(context.Context) (Validity, error) {
	return Validity{Since: time.Now(), TTL: DefaultTTL}, nil
}
func (s *shutting) Release(context.Context) error { return s.answer(false) }
func (s *shutting) Undo(context.Context) error    { return s.answer(false) }

func (s *shutting) assertClear(t *testing.T) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	assert.False(t, s.held, "a lock is left behind")
	assert.Zero(t, s.late, "the backend was asked after its Close")
}

// The caller is in line when Close begins, and asks when Close is through.
func TestWhoComesToAskAfterCloseDoesNotAsk(t *testing.T) {
	for _, prompt := range []bool{true, false} {
		s := &shutting{prompt: prompt}
		c := s.open(t)
		cl := &call{client: c, name: "job", settings: settings{Asked: Asked{TTL: DefaultTTL}}, cancel: func(error) {}}
		require.NoError(t, c.lines.enter(t.Context(), "job", cl))
		require.NoError(t, c.Close())
		err := cl.attempt(t.Context())
		require.ErrorIs(t, err, ErrClosed)
		s.assertClear(t)
	}
}

// What comes when Close has given up waiting is asked for once more, and counted
// if that fails.
func TestATakeBackAfterCloseIsCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &shutting{}
		var told []error
		c := New(s, &Options{Trace: &Trace{TakenBack: func(_ context.Context, e Event) {
			told = append(told, e.Err)
		}}})
		require.NoError(t, c.Close())
		require.NoError(t, s.Close())
		(&Lease{client: c, name: "job", grant: Grant{Hold: s}, settings: settings{Asked: Asked{TTL: DefaultTTL}}}).takeBack(unused)
		synctest.Wait()
		require.Len(t, told, 1)
		require.ErrorIs(t, told[0], ErrUnavailable)
		assert.Equal(t, uint64(1), c.Stats().LeftBehind)
	})
}

// Together they are bounded, and not each of them.
func TestCloseOfAServiceThatHangsInAllThings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &hangingService{end: make(chan struct{})}
		c, err := Openers{"x": func(context.Context, *URL, Options) (Backend, error) {
			return h, nil
		}}.Open(t.Context(), "x://", nil)
		require.NoError(t, err)
		for _, name := range []string{"a", "b"} {
			_, err := c.Lock(t.Context(), name)
			require.NoError(t, err)
		}
		began := time.Now()
		err = c.Close()
		assert.Equal(t, closeTimeout, time.Since(began))
		require.ErrorIs(t, err, ErrUnavailable)
		assert.ErrorContains(t, err, "not every lock could be released")
		assert.ErrorContains(t, err, "does not end its connections yet")
		time.Sleep(time.Second)
		synctest.Wait()
		assert.Zero(t, c.busy.count(), "a release goes on after Close")
		close(h.end)
	})
}

// hangingService answers nothing but Acquire.
type hangingService struct {
	shutting
	end chan struct{}
}

func (h *hangingService) Acquire(ctx context.Context, req Request) (Grant, error) {
	g, err := h.shutting.Acquire(ctx, req)
	g.Hold = h
	return g, err
}

func (h *hangingService) Release(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
func (h *hangingService) Undo(ctx context.Context) error    { return h.Release(ctx) }
func (h *hangingService) Close() error                      { <-h.end; return nil }

// gated is a service whose Acquire waits until it is let through.
type gated struct {
	shutting
	arrived, pass chan struct{}
}

func (g *gated) Acquire(ctx context.Context, req Request) (Grant, error) {
	close(g.arrived)
	<-g.pass
	return g.shutting.Acquire(ctx, req)
}

func (f *inFlight) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.n
}

// Close would not see it otherwise, and would close the backend before the lock
// is held or taken back.
func TestAGrantIsCountedUntilItIsHeld(t *testing.T) {
	for _, prompt := range []bool{true, false} {
		g := &gated{shutting{prompt: prompt}, make(chan struct{}), make(chan struct{})}
		c := New(g, nil)
		locked := make(chan error, 1)
		go func() { _, err := c.Lock(context.Background(), "job"); locked <- err }()
		<-g.arrived
		c.lines.mu.Lock() // where a grant becomes a lease
		close(g.pass)
		assert.Never(t, func() bool { return c.busy.count() == 0 }, 50*time.Millisecond, time.Millisecond)
		c.lines.mu.Unlock()
		require.NoError(t, <-locked)
		require.NoError(t, c.Close())
		g.assertClear(t)
	}
}

// Otherwise Close could come between: it leaves a lease that has ended to who
// has ended it.
func TestAnUnlockIsCountedBeforeItEndsTheLease(t *testing.T) {
	c := New(&shutting{prompt: true}, nil)
	l, err := c.Lock(t.Context(), "job")
	require.NoError(t, err)
	counted := 0
	var probe context.CancelCauseFunc = func(error) { counted = c.busy.count() }
	l.mu.Lock()
	l.ends = map[*context.CancelCauseFunc]struct{}{&probe: {}}
	l.mu.Unlock()
	require.NoError(t, l.Unlock(t.Context()))
	assert.Equal(t, 1, counted)
	require.NoError(t, c.Close())
}
