//go:build unix

package main_test

import (
	"os/exec"
	"slices"
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
	for what, lose := range map[string]func(*testing.T, *service, *process){
		"killed":  func(_ *testing.T, _ *service, p *process) { p.signal(syscall.SIGKILL) },
		"stopped": func(_ *testing.T, _ *service, p *process) { p.signal(syscall.SIGSTOP) },
		"cut off": func(_ *testing.T, s *service, _ *process) { s.proxy.Set(lab.Hold) },
		"deleted": func(t *testing.T, s *service, _ *process) { s.MustDo(t, "DEL", lockKey) },
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s := startService(t)
			inner := slices.Concat([]string{"run", "-b", "file://" + t.TempDir(), "b", "--"}, command("family"))
			p := start(t, []with{s.through()}, slices.Concat([]string{"run"}, shortTTL, []string{"a", "--", binary}, inner)...)
			parent, child := number(t, p.expect("pid")), number(t, p.expect("child"))
			awaitGuard(t, parent)
			if what == "deleted" {
				lose(t, s, p)
				assert.Equal(t, 74, p.wait())
				require.Eventually(t, func() bool { return gone(parent) && gone(child) }, patience, time.Millisecond,
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

func TestNothingOfLockerStaysBehind(t *testing.T) {
	s := startService(t)
	p := start(t, []with{s.direct()}, locked(nil, "a", "listen")...)
	group := number(t, p.expect("group"))
	assert.NoError(t, syscall.Kill(-group, 0))
	p.signal(syscall.SIGTERM)
	assert.Equal(t, 0, p.wait())
	assert.ErrorIs(t, syscall.Kill(-group, 0), syscall.ESRCH)
	assert.False(t, s.kept(t))
}

func TestGuardEndsNoGroupThatItWasNotTold(t *testing.T) {
	// As if somebody had called it by hand: the group is the shell's.
	own := func(c *exec.Cmd) { c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }
	p := startCommand(t, []with{own}, "sh", "-c", `"$0" __guard >/dev/null; echo status $?`, binary)
	assert.Equal(t, "0", p.expect("status"))
}
