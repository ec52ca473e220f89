package etcdguard_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/golockers/locker"
	"github.com/golockers/locker/fencing"
	"github.com/golockers/locker/internal/lab"
)

// A reply that is lost leaves it open what happened, and the error has to say so.
func TestLostReply(t *testing.T) {
	for how, patience := range map[string]time.Duration{"connection cut": soon, "silence": time.Second} {
		t.Run(how, func(t *testing.T) {
			s := newScene(t, 1)
			p := lab.StartProxy(t, s.Nodes[0].Addr())
			g := newGuard(t, dial(t, []string{p.Addr()}), nil)
			_, err := g.Commit(within(t, soon), "r", 1)
			require.NoError(t, err)
			links := make(chan *lab.Link, 1)
			p.OnRequest("lost words", func(l *lab.Link) {
				l.SetReplies(lab.Drop)
				links <- l
			})
			ctx := within(t, patience)
			answer := make(chan error, 1)
			go func() {
				_, err := g.Commit(ctx, "r", 2, clientv3.OpPut("data", "lost words"))
				answer <- err
			}()
			link := <-links
			require.Eventually(
				t,
				func() bool { return s.value(t, "data") == "lost words" },
				soon,
				time.Millisecond,
				"it is carried out",
			)
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
				_, err = g.Commit(within(t, soon), "r", 2, clientv3.OpPut("data", "lost words"))
				return err == nil
			}, soon, 10*time.Millisecond)
			_, err = g.Commit(within(t, soon), "r", 1)
			require.ErrorIs(t, err, fencing.ErrStale)
		})
	}
}

// What was given up and arrives late must not undo what a later holder wrote.
func TestLateRequestIsGuarded(t *testing.T) {
	s := newScene(t, 1)
	p := lab.StartProxy(t, s.Nodes[0].Addr())
	late := newGuard(t, dial(t, []string{p.Addr()}), nil)
	_, err := late.Commit(within(t, soon), "r", 1, clientv3.OpPut("data", "first"))
	require.NoError(t, err)
	p.SetRequests(lab.Hold)
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(100*time.Millisecond, cancel)
	began := time.Now()
	_, err = late.Commit(ctx, "r", 1, clientv3.OpPut("data", "late"))
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, err, fencing.ErrUnknown)
	require.NotErrorIs(t, err, locker.ErrUnavailable, "it was the caller who gave up")
	assert.Less(t, time.Since(began), time.Second)
	_, err = s.guard.Commit(within(t, soon), "r", 2, clientv3.OpPut("data", "second"))
	require.NoError(t, err)
	sent := p.Stats().Requests.Delivered
	p.SetRequests(lab.Pass)
	require.Eventually(t, func() bool { return p.Stats().Requests.Delivered > sent }, soon, time.Millisecond)
	for range 20 {
		_, err = late.Mark(within(t, soon), "r") // behind the late one, on the same connection
		require.NoError(t, err)
	}
	assert.Equal(t, "second", s.value(t, "data"))
}

func TestUnreachableIsToldWithinTheDeadline(t *testing.T) {
	var config net.ListenConfig
	l, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	client := dial(t, []string{l.Addr().String()})
	check := func(d time.Duration, addr string, call func(context.Context) error) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), d)
		defer cancel()
		began := time.Now()
		err := call(ctx)
		require.ErrorIs(t, err, locker.ErrUnavailable)
		require.NotErrorIs(t, err, fencing.ErrUnknown, "nothing can have been written")
		assert.Contains(t, err.Error(), addr)
		assert.NotContains(t, err.Error(), "\n")
		assert.Less(t, time.Since(began), d+1500*time.Millisecond)
	}
	g := newGuard(t, client, nil)
	for range 3 {
		// Long before a deadline that is far.
		for _, d := range []time.Duration{soon, 100 * time.Millisecond} {
			began := time.Now()
			check(
				d,
				l.Addr().String(),
				func(ctx context.Context) error { _, err := g.Commit(ctx, "r", 1); return err },
			)
			check(d, l.Addr().String(), func(ctx context.Context) error { _, err := g.Mark(ctx, "r"); return err })
			assert.Less(t, time.Since(began), 5*time.Second)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = newGuard(t, client, nil).Commit(ctx, "r", 1)
	require.ErrorIs(t, err, context.Canceled)
	require.NotErrorIs(t, err, fencing.ErrUnknown)
}

func TestSilentServerIsToldWithinTheDeadline(t *testing.T) {
	s := newScene(t, 1)
	client := dial(t, s.Addrs())
	g := newGuard(t, client, nil)
	_, err := g.Mark(within(t, soon), "r")
	require.NoError(t, err)
	s.Nodes[0].Pause()
	defer s.Nodes[0].Resume()
	for what, call := range map[string]func(context.Context) error{
		"commit": func(ctx context.Context) error { _, err := g.Commit(ctx, "r", 1); return err },
		"mark":   func(ctx context.Context) error { _, err := g.Mark(ctx, "r"); return err },
		"forget": func(ctx context.Context) error { return g.Forget(ctx, "r") },
	} {
		began := time.Now()
		err := call(within(t, 200*time.Millisecond))
		require.ErrorIs(t, err, locker.ErrUnavailable, what)
		require.ErrorIs(t, err, context.DeadlineExceeded, what)
		assert.Less(t, time.Since(began), 1700*time.Millisecond, what)
		if what == "commit" {
			require.ErrorIs(t, err, fencing.ErrUnknown)
		} else {
			require.NotErrorIs(t, err, fencing.ErrUnknown, what)
		}
	}
}

func TestMissingRightsAreNotAnOutage(t *testing.T) {
	lab.NeedEtcd(t, 5) // 3.4 commits a write that its user has no right to
	s := newScene(t, 1)
	ctx := within(t, soon)
	for _, user := range []string{"root", "guarded", "stranger"} {
		_, err := s.admin.UserAdd(ctx, user, "s3cret")
		require.NoError(t, err)
	}
	_, err := s.admin.UserGrantRole(ctx, "root", "root")
	require.NoError(t, err)
	_, err = s.admin.RoleAdd(ctx, "guarded")
	require.NoError(t, err)
	for _, key := range []string{"fencing/1/", "data/"} {
		_, err = s.admin.RoleGrantPermission(
			ctx,
			"guarded",
			key,
			clientv3.GetPrefixRangeEnd(key),
			clientv3.PermissionType(clientv3.PermReadWrite),
		)
		require.NoError(t, err)
	}
	_, err = s.admin.UserGrantRole(ctx, "guarded", "guarded")
	require.NoError(t, err)
	_, err = s.admin.AuthEnable(ctx)
	require.NoError(t, err)
	as := func(user string) func(*clientv3.Config) {
		return func(c *clientv3.Config) { c.Username, c.Password = user, "s3cret" }
	}
	guarded := newGuard(t, dial(t, s.Addrs(), as("guarded")), nil)
	_, err = guarded.Commit(ctx, "r", 1, clientv3.OpPut("data/x", "1"))
	require.NoError(t, err, "the role of the documentation is enough")
	for what, call := range map[string]func() error{
		"not of the caller's": func() error {
			_, err := guarded.Commit(ctx, "r", 2, clientv3.OpPut("other", "1"))
			return err
		},
		"none": func() error {
			_, err := newGuard(t, dial(t, s.Addrs(), as("stranger")), nil).Commit(ctx, "r", 2)
			return err
		},
		"no user": func() error {
			_, err := newGuard(t, dial(t, s.Addrs()), nil).Commit(ctx, "r", 2)
			return err
		},
	} {
		err := call()
		require.Error(t, err, what)
		require.NotErrorIs(t, err, locker.ErrUnavailable, what)
		require.NotErrorIs(t, err, fencing.ErrUnknown, what)
		assert.NotContains(t, err.Error(), "s3cret", what)
		mark, err := guarded.Mark(ctx, "r")
		require.NoError(t, err)
		assert.EqualValues(t, 1, mark, what)
	}
}

// A member that runs out of space may say so of what it has written.
func TestNoSpaceIsNotARefusal(t *testing.T) {
	lab.NeedEtcd(t, 5) // 3.4 sees too late that its quota is used up
	s := newScene(t, 1, lab.WithEtcdFlag("quota-backend-bytes", "2000000"))
	data := strings.Repeat("x", 100<<10)
	for i := 0; ; i++ {
		require.Less(t, i, 100, "there is always space")
		_, err := s.guard.Commit(within(t, soon), "r", 1, clientv3.OpPut(fmt.Sprint("data", i), data))
		if err == nil {
			continue
		}
		require.ErrorContains(t, err, "space")
		require.ErrorIs(t, err, fencing.ErrUnknown)
		require.ErrorIs(t, err, locker.ErrUnavailable)
		return
	}
}
