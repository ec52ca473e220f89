//go:build unix

package main_test

import (
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/internal/lab"
)

// service is a Redis, with a proxy between it and the lockers of a test.
type service struct {
	*lab.Redis
	proxy *lab.Proxy
}

func startService(t *testing.T) *service {
	t.Helper()
	r := lab.StartRedis(t)
	return &service{r, lab.StartProxy(t, r.Addr())}
}

// through is the backend of a locker behind the proxy.
func (s *service) through() with { return withEnv("LOCKER_BACKEND=redis://" + s.proxy.Addr()) }

// direct is the backend without the proxy.
func (s *service) direct() with { return withEnv("LOCKER_BACKEND=redis://" + s.Addr()) }

// lockKey is the key of the lock "a" in Redis.
const lockKey = "locker:1:{a}"

// kept reports whether the server still keeps the lock "a" for its holder.
func (s *service) kept(t *testing.T) bool {
	t.Helper()
	return s.MustDo(t, "EXISTS", lockKey) == int64(1)
}

// endWhileKept waits until the processes are gone, and fails if the lock was
// free by then.
func (s *service) endWhileKept(t *testing.T, pids ...int) {
	t.Helper()
	for _, pid := range pids {
		require.Eventually(t, func() bool { return gone(pid) }, patience, time.Millisecond)
	}
	assert.True(t, s.kept(t), "the command must be gone before another can hold the lock")
}

// next starts to wait for the lock, to see whether the processes are gone when
// it gets it.
func (s *service) next(t *testing.T, pids ...int) *process {
	t.Helper()
	args := locked(nil, "a", "meet")
	for _, pid := range pids {
		args = append(args, strconv.Itoa(pid))
	}
	return start(t, []with{s.direct()}, args...)
}

// isAlone fails if the next holder has met the one before.
func isAlone(t *testing.T, next *process) {
	t.Helper()
	assert.Equal(t, 0, next.wait(), "the next holder must not meet the command of the one before: %q",
		next.stdout())
}

// shortTTL is short for a test, and long enough for its parts, some hundreds
// of ms each, to be told apart on a busy machine.
var shortTTL = []string{"--ttl", "3s"}

func TestOutageEndsTheCommandBeforeAnotherCanHoldTheLock(t *testing.T) {
	for _, mode := range []lab.Mode{lab.Hold, lab.Reset} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			s := startService(t)
			p := start(t, []with{s.through()}, locked(shortTTL, "a", "listen", "stubborn")...)
			child := number(t, p.expect("pid"))
			p.expect("group")
			next := s.next(t, child)
			s.proxy.Set(mode)
			p.expect("got SIGTERM") // time to end in good order
			assert.True(t, next.running())
			isAlone(t, next)
			assert.Equal(t, 74, p.wait())
			assert.Contains(t, p.said(), "SIGTERM")
			assert.Contains(t, p.said(), `"a": sent SIGKILL`)
		})
	}
}

func TestOutageEndsWhatTheCommandHasStarted(t *testing.T) {
	t.Parallel()
	s := startService(t)
	p := start(t, []with{s.through()}, locked(shortTTL, "a", "family")...)
	parent, child := number(t, p.expect("pid")), number(t, p.expect("child"))
	next := s.next(t, parent, child)
	s.proxy.Set(lab.Hold)
	// The command itself ends on SIGTERM, its child does not.
	isAlone(t, next)
	assert.Equal(t, 74, p.wait())
}

func TestCommandThatObeysIsNotKilledButTheLockWasLost(t *testing.T) {
	t.Parallel()
	s := startService(t)
	p := start(t, []with{s.through()}, locked(shortTTL, "a", "listen")...)
	next := s.next(t, number(t, p.expect("pid")))
	s.proxy.Set(lab.Hold)
	p.expect("got SIGTERM")
	isAlone(t, next)
	assert.Equal(t, 74, p.wait())
	assert.NotContains(t, p.said(), `"a": sent SIGKILL`)
}

func TestStoppedCommandIsWokenUpToEnd(t *testing.T) {
	t.Parallel()
	s := startService(t)
	p := start(t, []with{s.through()}, locked(shortTTL, "a", "listen")...)
	child := number(t, p.expect("pid"))
	next := s.next(t, child)
	require.NoError(t, syscall.Kill(child, syscall.SIGSTOP))
	s.proxy.Set(lab.Hold)
	p.expect("got SIGTERM")
	isAlone(t, next)
	assert.Equal(t, 74, p.wait())
}

func TestShortOutageIsSatOut(t *testing.T) {
	t.Parallel()
	s := startService(t)
	p := start(t, []with{s.through()}, locked(shortTTL, "a", "listen")...)
	p.expect("group")
	s.proxy.Set(lab.Reset)
	p.expectSaid(`cannot renew "a"`)
	s.proxy.Set(lab.Pass)
	p.expectSaid(`renewed "a" again`)
	p.signal(syscall.SIGUSR1)
	assert.Equal(t, "SIGUSR1", p.expect("got"), "nothing may come before it")
	p.signal(syscall.SIGTERM)
	assert.Equal(t, 0, p.wait())
	assert.False(t, s.kept(t))
}

func TestLockThatIsGoneEndsTheCommandAtOnce(t *testing.T) {
	for _, what := range []string{"stubborn", "obedient"} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s := startService(t)
			p := start(t, []with{s.through()}, locked(shortTTL, "a", "listen", what)...)
			child := number(t, p.expect("pid"))
			s.MustDo(t, "DEL", lockKey)
			assert.Equal(t, 74, p.wait())
			assert.True(t, gone(child))
			assert.Contains(t, p.said(), "sent SIGTERM, SIGKILL follows in 100ms")
			if what == "stubborn" {
				assert.Contains(t, p.said(), `"a": sent SIGKILL`)
			}
		})
	}
}

func TestLockLostUnnoticedIsTold(t *testing.T) {
	s := startService(t)
	p := start(t, []with{s.through()}, locked(nil, "a", "listen")...)
	p.expect("group")
	s.MustDo(t, "DEL", lockKey)
	p.signal(syscall.SIGTERM) // the command ends long before the next renewal
	assert.Equal(t, 74, p.wait())
	assert.Contains(t, p.said(), "lost")
}

func TestCommandThatEndsDuringAnOutageHasDoneItsWork(t *testing.T) {
	s := startService(t)
	p := start(t, []with{s.through()}, locked(nil, "a", "listen")...)
	p.expect("group")
	s.proxy.Set(lab.Reset)
	p.signal(syscall.SIGHUP)
	assert.Equal(t, 3, p.wait(), "its own status")
	assert.Contains(t, p.said(), "warning")
}

func TestLostLockIsActedUponWhenStderrTakesNothing(t *testing.T) {
	for _, what := range []string{"closed", "full"} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			r, w, err := os.Pipe()
			require.NoError(t, err)
			defer w.Close()
			if what == "closed" {
				require.NoError(t, r.Close())
			} else {
				defer r.Close()
				fill(t, w)
			}
			s := startService(t)
			p := start(t, []with{s.through(), func(c *exec.Cmd) { c.Stderr = w }},
				locked(shortTTL, "a", "listen", "stubborn")...)
			next := s.next(t, number(t, p.expect("pid")))
			s.proxy.Set(lab.Reset)
			isAlone(t, next)
			assert.Equal(t, 74, p.wait())
		})
	}
}

// fill writes into a pipe until it takes no more.
func fill(t *testing.T, w *os.File) {
	t.Helper()
	require.NoError(t, w.SetWriteDeadline(time.Now().Add(50*time.Millisecond)))
	_, err := w.Write(make([]byte, 1<<20))
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
}
