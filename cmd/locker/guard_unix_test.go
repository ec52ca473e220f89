//go:build unix

package main_test

import (
	"os/exec"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
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
