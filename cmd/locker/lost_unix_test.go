//go:build unix

package main_test

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
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

// Nobody else holds the lock before the command, and what it has started, has ended.
func TestOutageEndsTheCommandBeforeAnotherCanHoldTheLock(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		role    []string
		mode    lab.Mode
		stopped bool // it is woken up to end
		killed  bool
	}{
		"requests are held":       {role: []string{"listen", "stubborn"}, mode: lab.Hold, killed: true},
		"connections are refused": {role: []string{"listen", "stubborn"}, mode: lab.Reset, killed: true},
		"it obeys":                {role: []string{"listen"}, mode: lab.Hold},
		"it was stopped":          {role: []string{"listen"}, mode: lab.Hold, stopped: true},
		"it has a child":          {role: []string{"family"}, mode: lab.Hold}, // which does not obey
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s := startService(t)
			p := start(t, []with{s.through()}, locked(shortTTL, "a", c.role[0], c.role[1:]...)...)
			pids := []int{number(t, p.expect("pid"))}
			if c.role[0] == "family" {
				pids = append(pids, number(t, p.expect("child")))
			}
			next := s.next(t, pids...)
			if c.stopped {
				require.NoError(t, syscall.Kill(pids[0], syscall.SIGSTOP))
			}
			s.proxy.Set(c.mode)
			if c.role[0] == "listen" {
				p.expect("got SIGTERM") // time to end in good order
			}
			isAlone(t, next)
			assert.Equal(t, 74, p.wait())
			assert.Contains(t, p.said(), "SIGTERM")
			assert.Equal(t, c.killed, strings.Contains(p.said(), `"a": sent SIGKILL`))
		})
	}
}

func TestShortOutageIsSatOut(t *testing.T) {
	t.Parallel()
	s := startService(t)
	p := holding(t, []with{s.through()}, shortTTL...)
	s.proxy.Set(lab.Reset)
	p.expectSaid(`cannot renew "a"`)
	s.proxy.Set(lab.Pass)
	p.expectSaid(`renewed "a" again`)
	p.signal(syscall.SIGUSR1)
	assert.Equal(t, "SIGUSR1", p.expect("got"), "nothing may come before it")
	p.end()
	assert.False(t, s.kept(t))
}

func TestLockThatIsGoneEndsTheCommandAtOnce(t *testing.T) {
	t.Parallel()
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
	p := holding(t, []with{s.through()})
	s.MustDo(t, "DEL", lockKey)
	p.signal(syscall.SIGTERM) // the command ends long before the next renewal
	assert.Equal(t, 74, p.wait())
	assert.Contains(t, p.said(), "lost")
}

func TestCommandThatEndsDuringAnOutageHasDoneItsWork(t *testing.T) {
	s := startService(t)
	p := holding(t, []with{s.through()})
	s.proxy.Set(lab.Reset)
	p.signal(syscall.SIGHUP)
	assert.Equal(t, 3, p.wait(), "its own status")
	assert.Contains(t, p.said(), "warning")
}

func TestLostLockIsActedUponWhenStderrTakesNothing(t *testing.T) {
	t.Parallel()
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
