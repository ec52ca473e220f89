package main_test

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// more reads what stands on the terminal; false: nothing new.
func (p *pty) more() bool {
	fd := int(p.master.Fd()) // which makes it block, each time
	require.NoError(p.t, unix.SetNonblock(fd, true))
	b := make([]byte, 4096)
	n, err := unix.Read(fd, b)
	if err != nil {
		return false
	}
	p.unseen += string(b[:n])
	return true
}

// shown is the rest of the terminal's content that was not seen yet. Its writer has ended.
func (p *pty) shown() string {
	p.t.Helper()
	for p.more() {
	}
	return p.unseen
}

// shells are those that are here of the two that deal with Ctrl-C differently:
// dash dies of it, bash only if what it has run died of it, too.
func shells(t *testing.T) (all []string) {
	for _, shell := range []string{"dash", "bash"} {
		if _, err := exec.LookPath(shell); err == nil {
			all = append(all, shell)
		}
	}
	if len(all) == 0 {
		t.Skip("neither dash nor bash")
	}
	return all
}

// sleeper is a command that says its pid, and dies of what it gets.
var sleeper = []string{"sh", "-c", "echo pid $$; exec sleep 60"}

func TestKeyThatEndsTheCommandEndsTheScriptAroundIt(t *testing.T) {
	backend := startService(t).direct()
	for _, c := range []struct {
		what, script string
	}{
		{"the next line", `"$0" "$@"; echo next`},
		{"a condition", `"$0" "$@" && echo next; echo next`},
		{"a loop", `for i in 1 2 3; do "$0" "$@"; echo next; done`},
		{"without stderr", `"$0" "$@" 2>/dev/null; echo next`},
		{"terminal on demand", `"$0" "$@" | cat; echo next`},
		{"no terminal", `"$0" "$@" </dev/null; echo next`},
	} {
		for _, shell := range shells(t) {
			t.Run(c.what+" "+shell, func(t *testing.T) {
				tty := newPty(t)
				command := sleeper
				if c.what == "terminal on demand" {
					command = []string{"sh", "-c", "echo pid $$; read line </dev/tty"}
				}
				args := slices.Concat([]string{"-c", c.script, binary, "run", "a", "--"}, command)
				p := startCommand(t, []with{backend, tty.whole}, shell, args...)
				tty.sees("pid ")
				pid := number(t, strings.TrimSpace(tty.sees("\n")))
				if c.what == "terminal on demand" {
					require.Eventually(t, func() bool { return tty.foreground() == pid }, patience,
						time.Millisecond)
				}
				locker := number(t, child(t, p))
				tty.press(ctrlC)
				assert.Equal(t, -1, p.wait())
				assert.Equal(t, 0, do(t, []with{backend}, "run", "--try", "a", "--", "true").status,
					"the lock is given back first")
				assert.Equal(t, syscall.SIGINT, diedOf(p))
				assert.NotContains(t, tty.shown(), "next")
				require.Eventually(t, func() bool { return gone(locker) }, patience, time.Millisecond)
				assert.Empty(t, p.said())
				assert.True(t, gone(pid))
			})
		}
	}
}

func TestCtrlCDuringTheWaitEndsTheScriptAroundIt(t *testing.T) {
	for _, shell := range shells(t) {
		t.Run(shell, func(t *testing.T) {
			backend := fileBackend(t)
			holding(t, []with{backend})
			tty := newPty(t)
			p := startCommand(t, []with{backend, tty.whole}, shell, "-c", `"$0" run a -- true; echo next`,
				binary)
			awaitWaitingPid(t, child(t, p))
			tty.press(ctrlC)
			assert.Equal(t, -1, p.wait())
			assert.Equal(t, syscall.SIGINT, diedOf(p))
			assert.NotContains(t, tty.shown(), "next")
		})
	}
}

func TestScriptGoesOnAfterAnInterruptThatWasNotForIt(t *testing.T) {
	for _, shell := range shells(t) {
		t.Run("of locker alone "+shell, func(t *testing.T) {
			tty := newPty(t)
			args := slices.Concat([]string{"-c", `"$0" "$@"; echo status $?`, binary, "run", "a", "--"},
				sleeper)
			p := startCommand(t, []with{fileBackend(t), tty.whole}, shell, args...)
			tty.sees("pid ")
			require.NoError(t, syscall.Kill(number(t, child(t, p)), syscall.SIGINT))
			tty.sees("status 130")
			assert.Equal(t, 0, p.wait())
		})
		t.Run("that the command deals with "+shell, func(t *testing.T) {
			tty := newPty(t)
			args := append([]string{"-c", `"$0" "$@"; echo status $?`, binary}, locked(nil, "a", "listen",
				"obedient")...)
			p := startCommand(t, []with{fileBackend(t), tty.whole}, shell, args...)
			tty.sees("group ")
			tty.press(ctrlC)
			tty.sees("status 3")
			assert.Equal(t, 0, p.wait())
		})
	}
}

func TestFirstProcessOfAContainerCannotDieOfASignal(t *testing.T) {
	tty := newPty(t)
	first := func(c *exec.Cmd) {
		tty.session(c)
		c.SysProcAttr.Cloneflags = syscall.CLONE_NEWPID
	}
	if os.Geteuid() != 0 {
		t.Skip("only root can make a namespace")
	}
	p := start(t, []with{fileBackend(t), first}, "run", "a", "--", "sh", "-c", "kill -2 $$")
	assert.Equal(t, 128+2, p.wait())
}

// child is the pid of a shell's first child.
func child(t *testing.T, shell *process) (pid string) {
	t.Helper()
	require.Eventually(t, func() bool {
		of := shell.cmd.Process.Pid
		all, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", of, of))
		require.NoError(t, err)
		pid, _, _ = strings.Cut(string(all), " ")
		return pid != ""
	}, patience, time.Millisecond)
	return pid
}

// Where nobody can press Ctrl-C, an exit status says what became of the command.
func TestWithoutATerminalSIGINTIsAnExitStatus(t *testing.T) {
	p := startCommand(t, []with{fileBackend(t)}, "setsid", "--wait", binary, "run", "a", "--", "sh", "-c",
		"kill -INT $$")
	assert.Equal(t, 130, p.wait())
}
