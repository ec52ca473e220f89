package guardtest

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/fencing"
	"github.com/golockers/locker/internal/lab"
)

const soon = 20 * time.Second

// Proxied is a store whose Write, Raise and Mark go through a proxy. Its Read does not.
type Proxied struct {
	Store
	Proxy *lab.Proxy
	// Later writes as another client, past the proxy.
	Later func(ctx context.Context, resource string, token fencing.Token, value string) error
	// Deadlines: the driver heeds a context's deadline, and not that it is cancelled.
	Deadlines bool
}

// Faults checks what a guard says while the network loses and delays what it sends, and what it then refuses.
func Faults(t *testing.T, open func(t *testing.T) Proxied) {
	t.Run("lost reply", func(t *testing.T) { testLostReply(t, open) })
	t.Run("late request", func(t *testing.T) { testLateRequest(t, open(t)) })
	t.Run("a network that breaks", func(t *testing.T) { Broken(t, open(t)) })
}

// Broken has writers of all ages write while connections break and requests and replies are held back. What
// is read after an accepted write is never of a lower token. LOCKER_GUARD_CAMPAIGN=1m makes it that long.
func Broken(t *testing.T, s Proxied) {
	const r, writers = "broken", 6
	length := 1500 * time.Millisecond
	if asked := os.Getenv("LOCKER_GUARD_CAMPAIGN"); asked != "" {
		var err error
		length, err = time.ParseDuration(asked)
		require.NoError(t, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), length)
	defer cancel()
	var newest, accepted, stale, open atomic.Int64
	var all sync.WaitGroup
	for range writers {
		all.Go(func() {
			for ctx.Err() == nil {
				token := fencing.Token(newest.Add(1))
				token -= min(token-1, fencing.Token(rand.IntN(4)))
				within, done := context.WithTimeout(t.Context(), 3*time.Second)
				err := s.Write(within, r, token, token.String())
				done()
				switch {
				case err == nil:
					accepted.Add(1)
					value, err := s.Read(t.Context(), r)
					assert.NoError(t, err)
					read, err := fencing.Parse(value)
					assert.NoError(t, err)
					assert.GreaterOrEqual(t, read, token, "a lower token wrote after a higher one")
				case errors.Is(err, fencing.ErrStale):
					stale.Add(1)
				case s.Again == nil || !s.Again(err):
					open.Add(1)
					assert.ErrorIs(t, err, locker.ErrUnavailable)
				}
			}
		})
	}
	for faults := []lab.Mode{lab.Reset, lab.Hold, lab.Pass}; ctx.Err() == nil; {
		s.Proxy.Set(faults[rand.IntN(len(faults))])
		time.Sleep(rand.N(20 * time.Millisecond))
		s.Proxy.Set(lab.Pass)
		time.Sleep(rand.N(60 * time.Millisecond))
	}
	all.Wait()
	assert.NotZero(t, accepted.Load())
	assert.NotZero(t, stale.Load(), "they were never in each other's way: this proves nothing")
	t.Logf("%d guarded writes: %d accepted, none of them stale, %d refused, %d of open outcome",
		accepted.Load()+stale.Load()+open.Load(), accepted.Load(), stale.Load(), open.Load())
}

// testLostReply checks that a reply that is lost leaves it open what happened, and that the error says so.
func testLostReply(t *testing.T, open func(t *testing.T) Proxied) {
	for how, patience := range map[string]time.Duration{"connection cut": soon, "silence": time.Second} {
		t.Run(how, func(t *testing.T) {
			s := open(t)
			require.NoError(t, s.write(t, "r", 1, "first"))
			links := make(chan *lab.Link, 1)
			s.Proxy.OnRequest("lost words", func(l *lab.Link) {
				l.Replies(lab.Drop)
				links <- l
			})
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			answer := make(chan error, 1)
			go func() { answer <- s.Write(ctx, "r", 2, "lost words") }()
			link := <-links
			require.Eventually(t, func() bool { return s.read(t, "r") == "lost words" }, soon, time.Millisecond,
				"it is carried out")
			began := time.Now()
			if how == "connection cut" {
				link.Reset()
			}
			err := <-answer
			require.ErrorIs(t, err, fencing.ErrUnknown)
			require.ErrorIs(t, err, locker.ErrUnavailable)
			require.NotErrorIs(t, err, fencing.ErrStale)
			assert.Less(t, time.Since(began), 1500*time.Millisecond)
			link.Reset() // it would be silent for good
			require.Eventually(t, func() bool { return s.write(t, "r", 2, "lost words") == nil }, soon,
				10*time.Millisecond, "the same again is safe for the mark")
			require.ErrorIs(t, s.raise(t, "r", 1), fencing.ErrStale)
		})
	}
}

// testLateRequest checks that what was given up and arrives late does not undo what a later holder wrote.
func testLateRequest(t *testing.T, s Proxied) {
	require.NoError(t, s.write(t, "r", 1, "first"))
	s.Proxy.OnRequest("late words", func(*lab.Link) { s.Proxy.Requests(lab.Hold) })
	const patience = 100 * time.Millisecond
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	want := context.Canceled
	if s.Deadlines {
		ctx, cancel = context.WithTimeout(ctx, patience)
		defer cancel()
		want = context.DeadlineExceeded
	} else {
		time.AfterFunc(patience, cancel)
	}
	began := time.Now()
	err := s.Write(ctx, "r", 1, "late words")
	require.ErrorIs(t, err, want)
	require.ErrorIs(t, err, fencing.ErrUnknown)
	require.Equal(t, s.Deadlines, errors.Is(err, locker.ErrUnavailable), "unless it was the caller who gave up")
	assert.Less(t, time.Since(began), time.Second)
	require.NoError(t, s.Later(t.Context(), "r", 2, "second"))
	sent := s.Proxy.Stats().Requests.Delivered
	s.Proxy.Requests(lab.Pass)
	require.Eventually(t, func() bool { return s.Proxy.Stats().Requests.Delivered > sent },
		soon, time.Millisecond)
	for range 20 {
		s.mark(t, "r") // behind the late one, on the same connection
	}
	require.ErrorIs(t, s.write(t, "r", 1, "later"), fencing.ErrStale)
	assert.Equal(t, "second", s.read(t, "r"))
}

// DuringFault lets writers with tokens of all ages write, before fault, meanwhile and after it. written
// returns all tokens that were ever written, in their order.
func DuringFault(
	t *testing.T, writers []func(ctx context.Context, token fencing.Token) error, fault func(),
	written func() []fencing.Token,
) {
	const writes = 40 // before the fault, and after it
	var newest, accepted, unknown, stale, enough atomic.Int64
	var begin sync.Once
	var all, over sync.WaitGroup
	enough.Store(1 << 60)
	over.Add(1)
	for _, write := range writers {
		all.Go(func() {
			for n := accepted.Load(); n < enough.Load(); n = accepted.Load() {
				if n >= writes {
					begin.Do(func() {
						go func() {
							defer over.Done()
							fault()
							enough.Store(accepted.Load() + writes)
						}()
					})
				}
				token := fencing.Token(newest.Add(1))
				token -= min(token-1, fencing.Token(rand.IntN(4)))
				ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
				err := write(ctx, token)
				cancel()
				switch {
				case err == nil:
					accepted.Add(1)
				case errors.Is(err, fencing.ErrStale):
					stale.Add(1)
				case errors.Is(err, fencing.ErrUnknown):
					unknown.Add(1)
				default:
					assert.ErrorIs(t, err, locker.ErrUnavailable)
				}
			}
		})
	}
	all.Wait()
	over.Wait()
	assert.NotZero(t, stale.Load(), "the writers were never in each other's way")
	tokens := written()
	assert.IsNonDecreasing(t, tokens)
	assert.GreaterOrEqual(t, len(tokens), int(accepted.Load()), "what was accepted is there")
	assert.LessOrEqual(t, len(tokens), int(accepted.Load()+unknown.Load()), "what was refused is not")
}
