package zkguard_test

import (
	"context"
	"net"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/fencing"
	"github.com/golockers/locker/fencing/zkguard"
	"github.com/golockers/locker/internal/lab"
)

// A reply that is lost leaves it open what happened, and the error has to say so.
func TestLostReply(t *testing.T) {
	for how, patience := range map[string]time.Duration{"connection cut": soon, "silence": time.Second} {
		t.Run(how, func(t *testing.T) {
			s := newScene(t)
			put(t, s.admin, "/data", "")
			p := lab.StartProxy(t, s.server.Addr())
			g := newGuard(t, connect(t, p.Addr()), nil)
			_, err := g.Multi(within(t, soon), "r", 1)
			require.NoError(t, err)
			links := make(chan *lab.Link, 1)
			p.OnRequest("lost words", func(l *lab.Link) {
				l.SetReplies(lab.Drop)
				links <- l
			})
			ctx := within(t, patience)
			answer := make(chan error, 1)
			go func() {
				_, err := g.Multi(ctx, "r", 2, set("/data", "lost words"))
				answer <- err
			}()
			link := <-links
			require.Eventually(t, func() bool {
				data, _ := look(t, s.admin, "/data")
				return data == "lost words"
			}, soon, time.Millisecond, "it is carried out")
			began := time.Now()
			if how == "connection cut" {
				link.Reset()
			}
			err = <-answer
			require.ErrorIs(t, err, fencing.ErrUnknown)
			require.ErrorIs(t, err, locker.ErrUnavailable)
			require.NotErrorIs(t, err, fencing.ErrStale)
			assert.Less(t, time.Since(began), 1500*time.Millisecond)
			link.Reset() // it would be silent for good
			// The same again is safe for the mark.
			require.Eventually(t, func() bool {
				_, err = g.Multi(within(t, soon), "r", 2, set("/data", "lost words"))
				return err == nil
			}, soon, 10*time.Millisecond)
			_, err = g.Multi(within(t, soon), "r", 1)
			require.ErrorIs(t, err, fencing.ErrStale)
		})
	}
}

// What was given up and arrives late must not undo what a later holder wrote.
func TestLateRequestIsGuarded(t *testing.T) {
	s := newScene(t)
	put(t, s.admin, "/data", "")
	p := lab.StartProxy(t, s.server.Addr())
	late := newGuard(t, connect(t, p.Addr()), nil)
	_, err := late.Multi(within(t, soon), "r", 1, set("/data", "first"))
	require.NoError(t, err)
	p.OnRequest("late words", func(*lab.Link) { p.SetRequests(lab.Hold) })
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(100*time.Millisecond, cancel)
	began := time.Now()
	_, err = late.Multi(ctx, "r", 1, set("/data", "late words"))
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, err, fencing.ErrUnknown)
	require.NotErrorIs(t, err, locker.ErrUnavailable, "it was the caller who gave up")
	assert.Less(t, time.Since(began), time.Second)
	_, err = s.guard.Multi(within(t, soon), "r", 2, set("/data", "second"))
	require.NoError(t, err)
	p.SetRequests(lab.Pass)
	// Behind the late one, on the same connection.
	_, err = late.Multi(within(t, soon), "r", 1, set("/data", "later"))
	require.ErrorIs(t, err, fencing.ErrStale)
	data, _ := look(t, s.admin, "/data")
	assert.Equal(t, "second", data)
}

func TestUnreachableIsToldWithinTheDeadline(t *testing.T) {
	var config net.ListenConfig
	l, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	conn := connect(t, l.Addr().String())
	g := newGuard(t, conn, nil)
	for _, d := range []time.Duration{100 * time.Millisecond, soon, soon} {
		for what, call := range map[string]func(context.Context) error{
			"multi": func(ctx context.Context) error { _, err := g.Multi(ctx, "r", 1); return err },
			"mark":  func(ctx context.Context) error { _, err := g.Mark(ctx, "r"); return err },
		} {
			began := time.Now()
			err := call(within(t, d))
			require.ErrorIs(t, err, locker.ErrUnavailable, what)
			require.NotErrorIs(t, err, fencing.ErrUnknown, "nothing can have been written")
			assert.NotContains(t, err.Error(), "\n")
			assert.Less(t, time.Since(began), min(d, 5*time.Second)+1500*time.Millisecond, what)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = g.Multi(ctx, "r", 1)
	require.ErrorIs(t, err, context.Canceled)
	require.NotErrorIs(t, err, fencing.ErrUnknown)
}

// The driver knows no contexts: a server that hangs must not gather goroutines
// without end, nor hold anybody up.
func TestSilentServerIsToldWithinTheDeadline(t *testing.T) {
	s := newScene(t)
	put(t, s.admin, "/data", "")
	p := lab.StartProxy(t, s.server.Addr())
	conn := connect(t, p.Addr())
	g := newGuard(t, conn, nil)
	_, err := g.Multi(within(t, soon), "r", 1)
	require.NoError(t, err)
	p.Set(lab.Drop)
	for what, call := range map[string]func(context.Context) error{
		"multi": func(ctx context.Context) error { _, err := g.Multi(ctx, "r", 1); return err },
		"mark":  func(ctx context.Context) error { _, err := g.Mark(ctx, "r"); return err },
	} {
		began := time.Now()
		err := call(within(t, 200*time.Millisecond))
		require.ErrorIs(t, err, locker.ErrUnavailable, what)
		require.ErrorIs(t, err, context.DeadlineExceeded, what)
		require.NotErrorIs(t, err, fencing.ErrUnknown, what, "it has only read")
		assert.Less(t, time.Since(began), 1700*time.Millisecond, what)
	}
	var wg sync.WaitGroup
	began, before := time.Now(), runtime.NumGoroutine()
	const inFlight = 128
	for range 3 * inFlight {
		wg.Go(func() {
			_, err := g.Multi(within(t, 200*time.Millisecond), "r", 1, set("/data", "x"))
			assert.ErrorIs(t, err, locker.ErrUnavailable)
		})
	}
	wg.Wait()
	assert.Less(t, time.Since(began), 1500*time.Millisecond)
	assert.Eventually(t, func() bool { return runtime.NumGoroutine() <= before+inFlight+20 }, soon,
		time.Millisecond, "callers that have returned are gone")
	p.Set(lab.Pass)
	require.Eventually(t, func() bool {
		_, err := g.Multi(within(t, soon), "r", 1, set("/data", "y"))
		return err == nil
	}, soon, 10*time.Millisecond, "it goes on when the server does")
}

func TestClosedConnection(t *testing.T) {
	s := newScene(t)
	conn := connect(t, s.server.Addr())
	g := newGuard(t, conn, nil)
	_, err := g.Multi(within(t, soon), "r", 1)
	require.NoError(t, err)
	conn.Close()
	_, err = g.Multi(within(t, soon), "r", 1)
	require.ErrorIs(t, err, locker.ErrUnavailable)
	require.NotErrorIs(t, err, fencing.ErrUnknown)
}

func TestMissingRightsAreNotAnOutage(t *testing.T) {
	s := newScene(t)
	ctx := within(t, soon)
	as := func(credentials string) *zk.Conn {
		conn := connect(t, s.server.Addr())
		if credentials != "" {
			require.NoError(t, conn.AddAuth("digest", []byte(credentials)))
		}
		return conn
	}
	opts := &zkguard.Options{Prefix: "/app/fencing", ACL: zk.AuthACL(zk.PermAll)}
	owner := as("app:s3cret")
	g := newGuard(t, owner, opts)
	_, err := g.Multi(ctx, "r", 5)
	require.NoError(t, err)
	_, err = newGuard(t, as("app:s3cret"), opts).Multi(ctx, "r", 6)
	require.NoError(t, err)
	for _, path := range []string{"/app", "/app/fencing/1/mark", "/app/fencing/1/mark/r"} {
		acl, _, err := owner.GetACL(path)
		require.NoError(t, err)
		require.Len(t, acl, 1)
		assert.Equal(t, "digest", acl[0].Scheme, path)
	}
	for _, credentials := range []string{"app:other-s3cret", ""} {
		stranger := as(credentials)
		for what, call := range map[string]func() error{
			"a mark":     func() error { _, err := newGuard(t, stranger, opts).Multi(ctx, "r", 7); return err },
			"a new mark": func() error { _, err := newGuard(t, stranger, opts).Multi(ctx, "new", 7); return err },
		} {
			err := call()
			require.Error(t, err, what)
			require.NotErrorIs(t, err, locker.ErrUnavailable, what)
			require.NotErrorIs(t, err, fencing.ErrUnknown, what)
			if credentials != "" || what != "a new mark" {
				require.ErrorIs(t, err, zk.ErrNoAuth, what)
			}
			assert.NotContains(t, err.Error(), "s3cret", what)
		}
	}
	mark, err := g.Mark(ctx, "r")
	require.NoError(t, err)
	assert.EqualValues(t, 6, mark)
	// A right that is missing on the caller's own nodes is told as theirs.
	_, err = newGuard(t, as(""), nil).Multi(ctx, "r", 7, set("/app", "x"))
	var failed *zkguard.OpError
	require.ErrorAs(t, err, &failed)
	require.ErrorIs(t, err, zk.ErrNoAuth)
}
