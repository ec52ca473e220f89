package zkguard_test

import (
	"context"
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
