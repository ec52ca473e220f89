//go:build unix

package main_test

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/golockers/locker/internal/lab"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Whatever becomes of locker or its lock, its command has ended when the next holder gets it; also one that runs under
// a second, inner lock, with files: it is in a process group of the inner locker, which the outer one does not reach.
func TestCommandEndsWithItsLock(t *testing.T) {
	t.Parallel()
	for what, lose := range map[string]func(*service, *process){
		"killed":  func(_ *service, p *process) { p.signal(syscall.SIGKILL) },
		"stopped": func(_ *service, p *process) { p.signal(syscall.SIGSTOP) },
		"cut off": func(s *service, _ *process) { s.proxy.Set(lab.Hold) },
	} {
		for _, nested := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, nested %v", what, nested), func(t *testing.T) {
				t.Parallel()
				s := startService(t)
				ttl := []string{"--ttl", "8s"} // four processes start in it
				args := locked(ttl, "a", "family")
				if nested {
					args = slices.Concat([]string{"run"}, ttl, []string{"a", "--", binary, "run", "-b",
						"file://" + t.TempDir(), "b", "--"}, command("family"))
				}
				p := start(t, []with{s.through()}, args...)
				parent, child := number(t, p.expect("pid")), number(t, p.expect("child"))
				next := s.next(t, parent, child)
				lose(s, p)
				isAlone(t, next)
				p.signal(syscall.SIGCONT)
				status := p.wait()
				if what != "killed" {
					assert.Equal(t, 74, status)
				}
			})
		}
	}
}

// A guard that is stopped together with its group has an old deadline when it goes on.
func TestCommandThatWasStoppedAndContinuedIsNotEnded(t *testing.T) {
	t.Parallel()
	s := startService(t)
	p := start(t, []with{s.direct()}, locked(shortTTL, "a", "listen")...)
	group := number(t, p.expect("group"))
	require.NoError(t, syscall.Kill(-group, syscall.SIGSTOP))
	time.Sleep(3500 * time.Millisecond) // more than the TTL, which locker renews meanwhile
	require.NoError(t, syscall.Kill(-group, syscall.SIGCONT))
	p.expect("got SIGCONT")
	time.Sleep(100 * time.Millisecond)
	p.end()
	assert.Empty(t, p.said())
}

// Without its guard, a command would outlive a locker that is killed.
func TestCommandWhoseGuardWasKilledEnds(t *testing.T) {
	s := startService(t)
	p := start(t, []with{s.direct()}, locked(nil, "a", "family")...)
	parent, child := number(t, p.expect("pid")), number(t, p.expect("child"))
	require.NoError(t, syscall.Kill(guardOf(t, parent), syscall.SIGKILL))
	assert.Equal(t, 74, p.wait())
	assert.Contains(t, p.said(), "its guard was killed: sent SIGKILL")
	assert.True(t, gone(parent))
	assert.True(t, gone(child))
	assert.False(t, s.kept(t))
}

// A process that has left the command's group, as under timeout(1), ends with the lock, too, where the guard
// inherits it. Elsewhere it is out of locker's reach, and must not keep a file lock for ever.
func TestProcessThatLeftTheGroupEndsWithTheLock(t *testing.T) {
	t.Parallel()
	for what, lose := range map[string]func(*process, string){
		"killed": func(p *process, _ string) { p.signal(syscall.SIGKILL) },
		"lost":   func(_ *process, dir string) { require.NoError(t, os.Remove(dir+"/a.lock")) },
		"guard killed": func(p *process, _ string) {
			require.NoError(t, syscall.Kill(childOf(p.cmd.Process.Pid), syscall.SIGKILL))
		},
	} {
		t.Run(what, func(t *testing.T) {
			if runtime.GOOS != "linux" && what != "killed" {
				t.Skip("only Linux")
			}
			dir := t.TempDir()
			backend := withEnv("LOCKER_BACKEND=file://" + dir)
			p := start(t, []with{backend}, locked(nil, "a", "daemon")...)
			parent, left := number(t, p.expect("pid")), number(t, p.expect("left"))
			t.Cleanup(func() { _ = syscall.Kill(left, syscall.SIGKILL) })
			lose(p, dir)
			pids := []string{strconv.Itoa(parent), strconv.Itoa(left)}
			if what == "lost" {
				assert.Equal(t, 74, p.wait()) // the next holder of another file need not wait for it
			}
			if runtime.GOOS != "linux" {
				pids = pids[:1]
			}
			isAlone(t, start(t, []with{backend}, locked(nil, "a", "meet", pids...)...))
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
const lockKey = "locker:1:{a}"

// kept reports whether the server still keeps the lock "a" for its holder.
func (s *service) kept(t *testing.T) bool {
	t.Helper()
	return s.MustDo(t, "EXISTS", lockKey) == int64(1)
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
			p := start(t, []with{s.through()}, locked(shortTTL, "a", "listen", c.role)...)
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
	s, dir := startService(t), t.TempDir()
	for what, c := range map[string]struct {
		backend with
		name    string
		remove  func() error
	}{
		"stubborn": {s.through(), "a", func() error { s.MustDo(t, "DEL", lockKey); return nil }},
		"obedient": {s.through(), "b", func() error { s.MustDo(t, "DEL", "locker:1:{b}"); return nil }},
		"file":     {withEnv("LOCKER_BACKEND=file://" + dir), "a", func() error { return os.Remove(dir + "/a.lock") }},
	} {
		t.Run(what, func(t *testing.T) {
			p := start(t, []with{c.backend}, locked(shortTTL, c.name, "listen", what)...)
			child := number(t, p.expect("pid"))
			require.NoError(t, c.remove())
			assert.Equal(t, 74, p.wait())
			assert.True(t, gone(child))
			assert.Regexp(t, `sent SIGTERM, SIGKILL follows in \d+ms`, p.said())
			if what == "stubborn" {
				assert.Contains(t, p.said(), "sent SIGKILL")
			}
			assert.Equal(t, what == "file", strings.Contains(p.said(), "deleted"))
			assert.NotContains(t, p.said(), "trying again")
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
