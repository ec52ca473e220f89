package guardtest

import (
	"context"
	"errors"
	"fmt"
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

const soon = time.Minute

// Proxied is a store whose Write, Raise and Mark go through a proxy. Its Read does not.
type Proxied struct {
	Store
	Proxy *lab.Proxy
	// Later writes as another client, past the proxy.
	Later func(ctx context.Context, resource string, token fencing.Token, value string) error
	// Commit is in the request that decides about a write. "": the value is.
	Commit string
	// Locks: Later waits for a write whose deciding request is under way.
	Locks bool
	// Deadlines: the driver heeds a context's deadline, and not that it is cancelled.
	Deadlines bool
}

func (s Proxied) onCommit(value string, f func(*lab.Link)) {
	if s.Commit != "" {
		value = s.Commit
	}
	s.Proxy.OnRequest(value, f)
}

// Faults checks what a guard says while the network loses and delays what it sends, and what it then refuses.
// In the last test, writers of all ages write while connections break and requests and replies are held back;
// LOCKER_GUARD_CAMPAIGN=1m makes it that long.
func Faults(t *testing.T, open func(t *testing.T) Proxied) {
	t.Run("lost reply", func(t *testing.T) { testLostReply(t, open) })
	t.Run("late request", func(t *testing.T) { testLateRequest(t, open(t)) })
	t.Run("a network that breaks", func(t *testing.T) {
		s, length := open(t), 1500*time.Millisecond
		if asked := os.Getenv("LOCKER_GUARD_CAMPAIGN"); asked != "" {
			var err error
			length, err = time.ParseDuration(asked)
			require.NoError(t, err)
		}
		During(t, s.Store, []Store{s.Store, s.Store, s.Store, s.Store, s.Store, s.Store}, func() {
			faults := []lab.Mode{lab.Reset, lab.Hold, lab.Pass}
			for began := time.Now(); time.Since(began) < length; {
				s.Proxy.Set(faults[rand.IntN(len(faults))])
				time.Sleep(rand.N(20 * time.Millisecond))
				s.Proxy.Set(lab.Pass)
				time.Sleep(rand.N(60 * time.Millisecond))
			}
		})
	})
}

// testLostReply checks that a reply that is lost leaves it open what happened, and that the error says so.
func testLostReply(t *testing.T, open func(t *testing.T) Proxied) {
	for how, patience := range map[string]time.Duration{"connection cut": soon, "silence": time.Second} {
		t.Run(how, func(t *testing.T) {
			s := open(t)
			require.NoError(t, s.write(t, "r", 1, "first"))
			links := make(chan *lab.Link, 1)
			s.onCommit("lost words", func(l *lab.Link) {
				l.Replies(lab.Drop)
				links <- l
			})
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			answer := make(chan error, 1)
			go func() { answer <- s.Write(ctx, "r", 2, "lost words") }()
			var link *lab.Link
			select {
			case link = <-links:
			case err := <-answer:
				require.FailNow(t, "given up before it was sent: is the machine that slow?", "%v", err)
			}
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
			assert.Less(t, time.Since(began), 3*time.Second)
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
	ctx, cancel := context.WithCancel(t.Context())
	want := context.Canceled
	if s.Deadlines {
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		want = context.DeadlineExceeded
	}
	defer cancel()
	s.onCommit("late words", func(*lab.Link) {
		s.Proxy.Requests(lab.Hold)
		if !s.Deadlines {
			time.AfterFunc(50*time.Millisecond, cancel) // when the request is under way
		}
	})
	began := time.Now()
	err := s.Write(ctx, "r", 1, "late words")
	require.ErrorIs(t, err, want)
	require.ErrorIs(t, err, fencing.ErrUnknown)
	require.Equal(t, s.Deadlines, errors.Is(err, locker.ErrUnavailable), "unless it was the caller who gave up")
	assert.Less(t, time.Since(began), 3*time.Second)
	later := make(chan error, 1)
	go func() { later <- s.Later(t.Context(), "r", 2, "second") }()
	if !s.Locks {
		require.NoError(t, <-later)
	}
	sent := s.Proxy.Stats().Requests.Delivered
	s.Proxy.Requests(lab.Pass)
	require.Eventually(t, func() bool { return s.Proxy.Stats().Requests.Delivered > sent },
		soon, time.Millisecond)
	if s.Locks {
		require.NoError(t, <-later)
	}
	for range 20 {
		s.mark(t, "r") // behind the late one, on the same connection
	}
	require.ErrorIs(t, s.write(t, "r", 1, "later"), fencing.ErrStale)
	assert.Equal(t, "second", s.read(t, "r"))
}

func clients(t *testing.T, open func(t *testing.T) Store) (all []Store) {
	for range 6 {
		all = append(all, open(t))
	}
	return all
}

// During lets writers write and raise with tokens of all ages: before fault, meanwhile and after it. After each
// attempt the value is read, which is never of a lower token than one that was accepted before the reading began.
func During(t *testing.T, reader Store, writers []Store, fault func()) {
	const r, writes = "race", 40 // writes before the fault, and after it
	var newest, accepted, stale, open atomic.Int64
	var written, marked highest
	patience := time.Minute
	if fault != nil {
		patience = 3 * time.Second
	}
	attempt := func(s Store) {
		token := fencing.Token(newest.Add(1))
		token -= min(token-1, fencing.Token(rand.IntN(4)))
		raise, value := rand.IntN(4) == 0, fmt.Sprintf("%d %x", token, rand.Uint64())
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		var err error
		if raise {
			err = s.Raise(ctx, r, token)
		} else {
			err = s.again(func() error { return s.Write(ctx, r, token, value) })
		}
		var refused *fencing.StaleError
		switch {
		case err == nil:
			accepted.Add(1)
			marked.atLeast(token)
			if !raise {
				written.atLeast(token)
			}
		case errors.As(err, &refused):
			stale.Add(1)
			assert.Greater(t, refused.Mark, token)
		case fault == nil:
			assert.NoError(t, err)
		default:
			open.Add(1)
			assert.ErrorIs(t, err, locker.ErrUnavailable)
		}
		before := written.Load()
		now, readErr := reader.Read(t.Context(), r)
		if readErr != nil && (fault != nil || s.Again != nil && s.Again(readErr)) {
			return
		}
		assert.NoError(t, readErr)
		var last uint64
		_, _ = fmt.Sscan(now, &last) // nothing yet: 0
		assert.GreaterOrEqual(t, last, before, "a lower token wrote after a higher one")
		if refused != nil {
			assert.NotEqual(t, value, now, "what was refused is there")
		}
	}
	over, end := context.WithCancel(t.Context())
	defer end()
	var all sync.WaitGroup
	for _, s := range writers {
		all.Go(func() {
			for over.Err() == nil {
				attempt(s)
			}
		})
	}
	more := func() {
		enough := accepted.Load() + writes
		assert.Eventually(t, func() bool { return accepted.Load() >= enough && stale.Load() > 0 }, time.Minute,
			time.Millisecond, "they were never in each other's way: this proves nothing")
	}
	more()
	if fault != nil {
		fault()
		more()
	}
	end()
	all.Wait()
	mark := uint64(reader.mark(t, r))
	assert.GreaterOrEqual(t, mark, marked.Load())
	assert.True(t, open.Load() > 0 || mark == marked.Load(), "mark %d, accepted %d", mark, marked.Load())
	t.Logf("%d guarded writes: %d accepted, none of them stale, %d refused, %d of open outcome",
		accepted.Load()+stale.Load()+open.Load(), accepted.Load(), stale.Load(), open.Load())
}

// highest is the highest token so far.
type highest struct{ atomic.Uint64 }

func (h *highest) atLeast(token fencing.Token) {
	for old := h.Load(); uint64(token) > old && !h.CompareAndSwap(old, uint64(token)); old = h.Load() {
	}
}
