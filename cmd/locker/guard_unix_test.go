//go:build unix

package main_test

import (
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/golockers/locker/internal/lab"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Whatever becomes of locker or its lock, a command that runs under a second, inner lock, with files, has ended, too,
// when the next holder gets it: it is in a process group of the inner locker, which the outer one does not reach.
func TestNestedCommandEndsWithTheOuterLock(t *testing.T) {
	t.Parallel()
	for what, lose := range map[string]func(*service, *process){
		"killed":  func(_ *service, p *process) { p.signal(syscall.SIGKILL) },
		"stopped": func(_ *service, p *process) { p.signal(syscall.SIGSTOP) },
		"cut off": func(s *service, _ *process) { s.proxy.Set(lab.Hold) },
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s := startService(t)
			args := []string{"run", "--ttl", "8s", "a", "--", binary, "run", "-b", "file://" + t.TempDir(), "b", "--"}
			p := start(t, []with{s.through()}, append(args, command("family")...)...) // four processes start in 8 s
			parent, child := number(t, p.expect("pid")), number(t, p.expect("child"))
			next := s.next(t, parent, child)
			lose(s, p)
			isAlone(t, next)
			p.signal(syscall.SIGCONT)
			if status := p.wait(); what != "killed" {
				assert.Equal(t, 74, status)
			}
		})
	}
}

func TestGuardEndsNoGroupThatItWasNotTold(t *testing.T) {
	// As if somebody had called it by hand: the group is the shell's.
	own := func(c *exec.Cmd) { c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }
	p := startCommand(t, []with{own}, "sh", "-c", `"$0" __guard >/dev/null; echo status $?`, binary)
	assert.Equal(t, "0", p.expect("status"))
}

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
const lockKey = "locker:2:{a}"

// kept reports whether the server still keeps the lock "a" for its holder.
func (s *service) kept(t *testing.T) bool {
	t.Helper()
	return s.MustDo(t, "EXISTS", lockKey) == int64(1)
}

// next starts to wait for the lock, to see whether the processes are gone when it gets it.
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
		role    string
		mode    lab.Mode
		stopped bool // it is woken up to end
	}{
		"connections are refused": {role: "stubborn", mode: lab.Reset},
		"it obeys":                {mode: lab.Hold},
		"it was stopped":          {mode: lab.Hold, stopped: true},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s := startService(t)
			ttl := []string{"--ttl", "5s"} // of which it has most of a second to end in good order
			p := start(t, []with{s.through()}, locked(ttl, "a", "listen", c.role)...)
			child := number(t, p.expect("pid"))
			next := s.next(t, child)
			if c.stopped {
				require.NoError(t, syscall.Kill(child, syscall.SIGSTOP))
			}
			s.proxy.Set(c.mode)
			p.expect("got SIGTERM") // time to end in good order
			isAlone(t, next)
			assert.Equal(t, 74, p.wait())
			assert.Contains(t, p.said(), "SIGTERM")
			if c.role == "stubborn" { // a busy machine may kill who obeys, too
				assert.Contains(t, p.said(), "sent SIGKILL")
			}
		})
	}
}

func TestShortOutageIsSatOut(t *testing.T) {
	t.Parallel()
	s := startService(t)
	p := holding(t, []with{s.through()}, "--ttl", "9s")
	s.proxy.Set(lab.Reset)
	p.expectSaid(`cannot renew "a"`)
	s.proxy.Set(lab.Pass)
	p.expectSaid(`renewed "a" again`)
	p.signal(syscall.SIGUSR1)
	assert.Equal(t, "SIGUSR1", p.expect("got"), "nothing may come before it")
	p.end()
	assert.False(t, s.kept(t))
}

// With the file backend, the command obeys, and has started a process that left its group, as timeout(1) does.
func TestLockThatIsGoneEndsTheCommandAtOnce(t *testing.T) {
	t.Parallel()
	s, dir := startService(t), t.TempDir()
	for what, c := range map[string]struct {
		backend with
		name    string
		role    []string
		remove  func() error
	}{
		"stubborn": {s.through(), "a", []string{"listen", "stubborn"}, func() error { s.MustDo(t, "DEL", lockKey); return nil }},
		"obedient": {s.through(), "b", []string{"listen"}, func() error { s.MustDo(t, "DEL", "locker:2:{b}"); return nil }},
		"file": {withEnv("LOCKER_BACKEND=file://" + dir), "a", []string{"leave", "later"},
			func() error { return os.Remove(dir + "/a.lock") }},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			var p *process
			for range 5 { // a busy machine may keep the guard from its work until locker does it
				p = start(t, []with{c.backend}, locked(shortTTL, c.name, c.role[0], c.role[1:]...)...)
				var pids []int
				if what == "file" {
					pids = append(pids, number(t, p.expect("child")))
					t.Cleanup(func() { _ = syscall.Kill(pids[0], syscall.SIGKILL) })
				}
				if pids = append(pids, number(t, p.expect("pid"))); runtime.GOOS != "linux" {
					pids = pids[len(pids)-1:] // there, what has left the group is out of reach
				}
				require.NoError(t, c.remove())
				assert.Equal(t, 74, p.wait())
				for _, pid := range pids {
					assert.True(t, gone(pid))
				}
				if !strings.Contains(p.said(), "its guard did not end the command in time: sent SIGKILL") {
					break
				}
			}
			assert.Regexp(t, `sent SIGTERM, SIGKILL follows in (\d+ms|0s)`, p.said()) // 0s: a busy machine has used it up
			if what == "stubborn" {
				assert.Contains(t, p.said(), "sent SIGKILL")
			}
			assert.Equal(t, what == "file", strings.Contains(p.said(), "deleted"))
			assert.NotContains(t, p.said(), "trying again")
		})
	}
}

func TestWhatBecomesOfTheLockOfACommandThatEnds(t *testing.T) {
	s := startService(t)
	p := holding(t, []with{s.through()})
	s.MustDo(t, "DEL", lockKey)
	p.signal(syscall.SIGTERM) // the command ends long before the next renewal
	assert.Equal(t, 74, p.wait())
	assert.Contains(t, p.said(), "lost")

	p = holding(t, []with{s.through()})
	s.proxy.Set(lab.Reset)
	p.signal(syscall.SIGHUP)
	assert.Equal(t, 3, p.wait(), "its own status: it has done its work")
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
				for n, all := 0, 0; n > 0 || all == 0; all += n {
					require.NoError(t, w.SetWriteDeadline(time.Now().Add(50*time.Millisecond)))
					n, err = w.Write(make([]byte, 1<<20))
					require.ErrorIs(t, err, os.ErrDeadlineExceeded)
				}
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
