package postgres_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/internal/locktest"
	"github.com/golockers/locker/postgres"
)

// newClient opens a Client by URL.
func newClient(t *testing.T, url string, opts *locker.Options) *locker.Client {
	t.Helper()
	c, err := locker.Open(t.Context(), url, opts, postgres.Openers)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// What ended the caller's context may have been another lock: the cause says nothing of this one.
func TestTheCauseOfAContextIsNoAnswer(t *testing.T) {
	_, p, b := proxied(t)
	free := acquire(t, b, "a", owner(1)).Hold
	renew := func(h driver.Hold) func(context.Context) error {
		return func(ctx context.Context) error { _, err := h.Renew(ctx); return err }
	}
	for request, ask := range map[string]func(context.Context) error{
		"nextval": func(ctx context.Context) error {
			_, err := locktest.Ask(ctx, b, request("b", owner(3)))
			return err
		},
		"mine AS": renew(free),
		"in_time": func(ctx context.Context) error { return free.Release(ctx, 0) },
	} {
		for _, cause := range []error{driver.ErrHeld, driver.ErrLost} {
			ctx, cancel := context.WithCancelCause(t.Context())
			p.OnRequest(request, func(l *lab.Link) { l.Requests(lab.Hold); cancel(cause) })
			for _, when := range []string{"while it is under way", "before"} {
				err := ask(ctx)
				require.ErrorIs(t, err, context.Canceled, "%s, %s", request, when)
				assert.NotErrorIs(t, err, cause)
			}
		}
	}
}

// A request is asked again with its row marked once it was refused. A caller whose time ends meanwhile knows that the
// lock is held; and for a while the next one marks the row at once, so that a note is renewed in one trip.
func TestAWaiterIsToldWhatTheFirstAnswerSaid(t *testing.T) {
	s, p, b := proxied(t)
	first, _ := newBackend(t, s.URL(s.Addr(), "sslmode=disable"), nil)
	var grants, marks atomic.Int32
	p.Watch(func(_ *lab.Link, reply bool, data []byte, _ bool) {
		if !reply && bytes.Contains(data, []byte("nextval")) {
			grants.Add(1)
		}
		if !reply && bytes.Contains(data, []byte("SET waited")) {
			marks.Add(1)
		}
	})
	asks := 10
	ask := func(ctx context.Context, name string) (driver.Grant, error) {
		asks++
		req := request(name, owner(asks))
		req.Wait = true
		return locktest.Ask(ctx, b, req)
	}
	for name, shared := range map[string]bool{"alone": false, "shared": true} {
		held := request(name, owner(1))
		held.Shared = shared
		locktest.Acquire(t, first, held)
		ctx, cancel := context.WithCancel(t.Context())
		p.OnRequest("SET waited", func(l *lab.Link) { l.Requests(lab.Hold); cancel() })
		before := marks.Load()
		g, err := ask(ctx, name)
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorIs(t, err, driver.ErrHeld)
		assert.Equal(t, shared, g.Refused.Leave != nil, "its note may be there")
		locktest.Eventually(t, 30*time.Second, "it is counted", func() bool { return marks.Load() > before })
		for range 2 {
			grants.Store(0)
			marks.Store(0)
			_, err = ask(t.Context(), name)
			require.ErrorIs(t, err, driver.ErrHeld)
			assert.NotZero(t, marks.Load())
			assert.Equal(t, marks.Load(), grants.Load(), "%s: each request marks, also a copy of one that was slow", name)
		}
	}
	grants.Store(0)
	marks.Store(0)
	_, err := ask(t.Context(), "free")
	require.NoError(t, err)
	assert.Equal(t, []int32{1, 0}, []int32{grants.Load(), marks.Load()})
}

// A full disk is no lock, and no loss of one.
func TestDiskFull(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("only root can mount a small file system")
	}
	dir, err := os.MkdirTemp("", "locker-full-")
	require.NoError(t, err)
	defer func() { _ = os.Remove(dir) }()
	if err := exec.CommandContext(t.Context(), "mount", "-t", "tmpfs", "-o", "size=160m", "tmpfs",
		dir).Run(); err != nil {
		t.Skip("cannot mount a file system here: ", err)
	}
	t.Cleanup(func() { _ = exec.CommandContext(context.Background(), "umount", dir).Run() })
	s := lab.StartPostgres(t, lab.WithDir(dir), lab.WithConfig("min_wal_size", "32MB"),
		lab.WithConfig("max_wal_size", "32MB"))
	c := newClient(t, s.URL(s.Addr(), "sslmode=disable"), nil)
	l, err := c.TryLock(t.Context(), "first")
	require.NoError(t, err)
	require.NoError(t, l.Unlock(t.Context()))
	filler := dir + "/filler"
	_ = os.WriteFile(filler, make([]byte, 200<<20), 0o600)
	var refused error
	for i := 0; refused == nil && i < 20000; i++ {
		_, refused = c.TryLock(t.Context(), fmt.Sprint(i, strings.Repeat("x", 400)))
	}
	require.ErrorIs(t, refused, driver.ErrUnavailable, "when the disk was full")
	require.NoError(t, os.Remove(filler))
	require.Eventually(t, func() bool { // a server whose log has no room crashes, and recovers
		if !s.Running() {
			s.Restart(t)
		}
		_, err := c.TryLock(t.Context(), "after")
		return err == nil
	}, 30*time.Second, 50*time.Millisecond)
}

// Timeouts of the server's, for statements and for idle transactions, cost nothing but the transaction.
func TestServerTimeouts(t *testing.T) {
	s, url := start(t, lab.WithConfig("statement_timeout", "2s"), lab.WithConfig("lock_timeout", "200ms"),
		lab.WithConfig("idle_in_transaction_session_timeout", "1s"))
	_, patient := newBackend(t, url+"&options=-c%20idle_in_transaction_session_timeout%3D0", nil)
	b, pool := newBackend(t, url, &postgres.Options{Timeout: 2 * time.Second})
	c := locktest.Client(t, b, nil)
	l := locktest.Lock(t, c, "a")
	tx := begin(t, pool)
	require.NoError(t, postgres.Held(t.Context(), tx, l))
	until(t, s, "0", "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'")
	require.Error(t, tx.Commit(t.Context()), "the server has ended it")

	// Somebody has locked the row by hand.
	other := begin(t, patient)
	_, err := other.Exec(t.Context(), "SELECT 1 FROM locker_locks FOR UPDATE")
	require.NoError(t, err)
	err = l.Renew(t.Context())
	require.ErrorIs(t, err, driver.ErrUnavailable)
	require.ErrorContains(t, err, "a transaction has locked the lock's row")
	require.NoError(t, other.Rollback(t.Context()))
	require.NoError(t, l.Renew(t.Context()))
	require.NoError(t, l.Unlock(t.Context()))
}

// The server's clock is what counts, and a step of it is told for what it is.
func TestClockSteps(t *testing.T) {
	s, url := start(t, lab.WithClock())
	a, b := newClient(t, url, nil), newClient(t, url, nil)
	s.JumpClock(t, 40*time.Second) // before, it is just another time than the clients'
	l := locktest.Lock(t, a, "x", locker.TTL(20*time.Second))
	_, err := b.TryLock(t.Context(), "x")
	require.ErrorIs(t, err, driver.ErrHeld)
	s.JumpClock(t, -time.Hour)
	require.NoError(t, l.Renew(t.Context()))
	_, err = b.TryLock(t.Context(), "x")
	require.ErrorIs(t, err, driver.ErrHeld)
	require.NoError(t, l.Unlock(t.Context()))
	l, err = a.Lock(t.Context(), "x", locker.TTL(20*time.Second))
	require.NoError(t, err, "what is released is free whatever the clock says")
	s.JumpClock(t, 2*time.Hour)
	next, err := b.TryLock(t.Context(), "x")
	require.NoError(t, err, "a step forward frees it early")
	require.ErrorIs(t, l.Renew(t.Context()), driver.ErrLost)
	first, _ := l.Token()
	second, _ := next.Token()
	assert.Greater(t, second, first)

	// Tokens rise all the same, by the row, and by the floor where the row was swept; what was given stays
	// high.
	last := second
	backend, _ := newBackend(t, url, nil)
	for i, step := range []time.Duration{-3 * time.Hour, 0, 4 * time.Hour, -4 * time.Hour, 0} {
		s.JumpClock(t, step)
		s.Exec(t, "UPDATE locker_locks SET owner = '', expires = clock_timestamp() - interval '1 hour' WHERE name = 'x'")
		if step == 0 {
			require.NoError(t, postgres.Sweep(t.Context(), backend))
			require.Equal(t, "0", s.Query(t, "SELECT count(*) FROM locker_locks WHERE name = 'x'"))
		}
		g := acquire(t, backend, "x", owner(i))
		require.Greater(t, g.Token, last)
		last = g.Token
	}
}

// A proxy that swallows notifications is reported, and waiters get in all the same.
func TestProvePgbouncer(t *testing.T) {
	lab.NeedProve(t)
	t.Parallel()
	s := lab.StartPostgres(t)
	addr := lab.StartPgbouncer(t, s)
	deaf := make(chan struct{}, 1)
	c := newClient(t, s.URL(addr, "sslmode=disable", "default_query_exec_mode=exec"),
		&locker.Options{Logger: slog.New(slog.NewTextHandler(told{"NOTIFY is not heard", deaf}, nil))})
	direct := newClient(t, s.URL(s.Addr(), "sslmode=disable"), nil)
	// With prepared statements, of which pgbouncer knows nothing here, it cannot work.
	var errs []string
	for range 8 {
		c, err := locker.Open(t.Context(), s.URL(addr, "sslmode=disable"), nil, postgres.Openers)
		if err == nil {
			defer func() { _ = c.Close() }()
			_, err = c.TryLock(t.Context(), "mixed up")
		}
		if err != nil && !errors.Is(err, driver.ErrHeld) {
			require.NotErrorIs(t, err, driver.ErrUnavailable)
			errs = append(errs, err.Error())
		}
	}
	assert.Contains(t, strings.Join(errs, "\n"), "default_query_exec_mode=exec")

	l := locktest.Lock(t, direct, "a")
	got := later(func() error {
		l, err := c.Lock(t.Context(), "a")
		if err == nil {
			err = l.Unlock(t.Context())
		}
		return err
	})
	select {
	case <-deaf:
	case <-time.After(30 * time.Second):
		t.Error("it does not find out that nothing is heard")
	}
	require.NoError(t, l.Unlock(t.Context()))
	require.NoError(t, <-got)
	require.NoError(t, c.Close())
}

// told is a log in which a text is looked for.
type told struct {
	text string
	seen chan<- struct{}
}

func (w told) Write(line []byte) (int, error) {
	if bytes.Contains(line, []byte(w.text)) {
		select {
		case w.seen <- struct{}{}:
		default:
		}
	}
	return len(line), nil
}
