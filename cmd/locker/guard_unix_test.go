//go:build unix

package main_test

import (
	"os/exec"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/internal/lab"
)

func TestKilledLockerTakesItsCommandAlong(t *testing.T) {
	s := startService(t)
	p := start(t, []with{s.direct()}, locked(nil, "a", "family")...)
	parent, child := number(t, p.expect("pid")), number(t, p.expect("child"))
	awaitGuard(t, parent)
	p.signal(syscall.SIGKILL)
	s.endWhileKept(t, parent, child)
}

func TestStoppedLockerDoesNotLetItsCommandGoOn(t *testing.T) {
	t.Parallel()
	s := startService(t)
	p := start(t, []with{s.direct()}, locked(shortTTL, "a", "family")...)
	parent, child := number(t, p.expect("pid")), number(t, p.expect("child"))
	awaitGuard(t, parent)
	next := s.next(t, parent, child)
	p.signal(syscall.SIGSTOP)
	isAlone(t, next)
	p.signal(syscall.SIGCONT)
	assert.Equal(t, 74, p.wait())
}

// A command that locks a second name, with files, is in a process group of the
// inner locker, which the outer one does not reach.
func TestLostOuterLockEndsTheCommandUnderAnInnerFileLock(t *testing.T) {
	t.Parallel()
	for what, lose := range map[string]func(*testing.T, *service, *process){
		"killed":  func(_ *testing.T, _ *service, p *process) { p.signal(syscall.SIGKILL) },
		"stopped": func(_ *testing.T, _ *service, p *process) { p.signal(syscall.SIGSTOP) },
		"cut off": func(_ *testing.T, s *service, _ *process) { s.proxy.Set(lab.Hold) },
		"deleted": func(t *testing.T, s *service, _ *process) { s.MustDo(t, "DEL", lockKey) },
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s := startService(t)
			inner := slices.Concat([]string{"run", "-b", "file://" + t.TempDir(), "b", "--"},
				command("family"))
			p := start(t, []with{s.through()}, slices.Concat([]string{"run"}, shortTTL, []string{"a",
				"--", binary}, inner)...)
			parent, child := number(t, p.expect("pid")), number(t, p.expect("child"))
			awaitGuard(t, parent)
			if what == "deleted" {
				lose(t, s, p)
				assert.Equal(t, 74, p.wait())
				require.Eventually(t, func() bool { return gone(parent) && gone(child) }, patience,
					time.Millisecond,
					"locker has said that the command was ended")
				return
			}
			next := s.next(t, parent, child)
			lose(t, s, p)
			isAlone(t, next)
			p.signal(syscall.SIGCONT)
			if status := p.wait(); what != "killed" {
				assert.Equal(t, 74, status)
			}
		})
	}
}

// A guard that is stopped together with its group has an old deadline when it goes on.
func TestCommandThatWasStoppedAndContinuedIsNotEnded(t *testing.T) {
	t.Parallel()
	s := startService(t)
	p := start(t, []with{s.direct()}, locked(shortTTL, "a", "listen")...)
	group := number(t, p.expect("group"))
	awaitGuard(t, group)
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
	require.NoError(t, syscall.Kill(awaitGuard(t, parent), syscall.SIGKILL))
	assert.Equal(t, 74, p.wait())
	assert.Contains(t, p.said(), "its guard was killed: sent SIGKILL")
	assert.True(t, gone(parent))
	assert.True(t, gone(child))
	assert.False(t, s.kept(t))
}

// A process that has left the command's group does not end together with locker, and must
// not keep a file lock for ever.
func TestProcessThatLeftTheGroupDoesNotKeepTheFileLockOfAKilledLocker(t *testing.T) {
	t.Parallel()
	backend := fileBackend(t)
	p := start(t, []with{backend}, locked(nil, "a", "daemon")...)
	parent, left := number(t, p.expect("pid")), number(t, p.expect("left"))
	t.Cleanup(func() { _ = syscall.Kill(left, syscall.SIGKILL) })
	awaitGuard(t, parent)
	p.signal(syscall.SIGKILL)
	next := start(t, []with{backend}, locked(nil, "a", "meet", strconv.Itoa(parent))...)
	isAlone(t, next)
	assert.False(t, gone(left), "it is out of locker's reach")
}

func TestNothingOfLockerStaysBehind(t *testing.T) {
	s := startService(t)
	p := start(t, []with{s.direct()}, locked(nil, "a", "listen")...)
	group := number(t, p.expect("group"))
	assert.NoError(t, syscall.Kill(-group, 0))
	p.end()
	assert.ErrorIs(t, syscall.Kill(-group, 0), syscall.ESRCH)
	assert.False(t, s.kept(t))
}

func TestGuardEndsNoGroupThatItWasNotTold(t *testing.T) {
	// As if somebody had called it by hand: the group is the shell's.
	own := func(c *exec.Cmd) { c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }
	p := startCommand(t, []with{own}, "sh", "-c", `"$0" __guard >/dev/null; echo status $?`, binary)
	assert.Equal(t, "0", p.expect("status"))
}
