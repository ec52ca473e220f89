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
	"golang.org/x/sys/unix"
)

// pty is a terminal whose keys the test presses.
type pty struct {
	t             *testing.T
	master, slave *os.File
	unseen        string
}

func newPty(t *testing.T) *pty {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip("no terminals here: ", err)
	}
	fd := int(master.Fd())
	require.NoError(t, unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetUint32(fd, unix.TIOCGPTN)
	require.NoError(t, err)
	slave, err := os.OpenFile("/dev/pts/"+strconv.Itoa(int(n)), os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = master.Close()
		_ = slave.Close()
	})
	return &pty{t: t, master: master, slave: slave}
}

// session runs a command as the leader of a session with the terminal as its
// stdin. Its stdout is a pipe, as everywhere in these tests.
func (p *pty) session(c *exec.Cmd) {
	c.Stdin = p.slave
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 0}
}

// whole is session with stdout on the terminal, too. The test reads the command's output from there.
func (p *pty) whole(c *exec.Cmd) {
	p.session(c)
	c.Stdout = p.slave
}

func (p *pty) press(keys string) {
	p.t.Helper()
	_, err := p.master.WriteString(keys)
	require.NoError(p.t, err)
}

// foreground is the process group in the foreground.
func (p *pty) foreground() int {
	group, err := unix.IoctlGetInt(int(p.master.Fd()), unix.TIOCGPGRP)
	require.NoError(p.t, err)
	return group
}

// sees waits until text stands on the terminal, and returns what stands before it since the last time.
func (p *pty) sees(text string) (before string) {
	p.t.Helper()
	for deadline := time.Now().Add(patience); !strings.Contains(p.unseen, text); {
		require.True(p.t, time.Now().Before(deadline), "the terminal should show %q, and shows %q", text,
			p.unseen)
		if !p.more() {
			time.Sleep(time.Millisecond)
		}
	}
	before, p.unseen, _ = strings.Cut(p.unseen, text)
	return before
}

// reads waits for a line of the command, which begins with text, and returns the rest of it:
// from the terminal if that is the command's stdout.
func (p *pty) reads(c *process, text string) string {
	p.t.Helper()
	if c.cmd.Stdout != p.slave {
		return c.expect(text)
	}
	p.sees(text)
	return strings.TrimSpace(p.sees("\n"))
}

// both are the two ways in which a command has a terminal.
func both(t *testing.T, test func(*testing.T, *pty, with)) {
	for what, session := range map[string]func(*pty, *exec.Cmd){
		"in the foreground": (*pty).whole, "in a pipeline": (*pty).session,
	} {
		t.Run(what, func(t *testing.T) {
			tty := newPty(t)
			test(t, tty, func(c *exec.Cmd) { session(tty, c) })
		})
	}
}

const (
	ctrlC = "\x03"
	ctrlZ = "\x1a"
)

func TestCtrlCReachesTheCommandOnce(t *testing.T) {
	both(t, func(t *testing.T, tty *pty, session with) {
		p := start(t, []with{fileBackend(t), session}, locked(nil, "a", "listen", "stubborn")...)
		group := number(t, tty.reads(p, "group"))
		assert.Equal(t, p.cmd.Stdout == tty.slave, group == tty.foreground(), "in a pipeline, another may need it")
		tty.press(ctrlC)
		assert.Equal(t, "SIGINT", tty.reads(p, "got"))
		p.signal(syscall.SIGUSR1)
		assert.Equal(t, "SIGUSR1", tty.reads(p, "got"))
		p.signal(syscall.SIGHUP)
		assert.Equal(t, 3, p.wait())
	})
}

func TestCtrlZDoesNotStopTheCommand(t *testing.T) {
	both(t, func(t *testing.T, tty *pty, session with) {
		p := start(t, []with{fileBackend(t), session}, locked(nil, "a", "listen")...)
		tty.reads(p, "group")
		tty.press(ctrlZ)
		p.expectSaid("not stopped")
		assert.NotEqual(t, byte('T'), state(p.cmd.Process.Pid), "who renews the lock must not be stopped")
		p.end()
	})
}

func TestCommandHasTheTerminalAndTheShellGetsItBack(t *testing.T) {
	script := `"$0" "$@"; echo status $?; read line; echo shell read $line`
	// With and without a file that the command inherits; later in a pipeline: locker run x -- ssh host | tee log
	for _, service := range []string{"file", "redis"} {
		backend := withEnv("LOCKER_BACKEND=" + services[service](t))
		both(t, func(t *testing.T, tty *pty, session with) {
			args := append([]string{"-c", script, binary}, locked(nil, "a", "read")...)
			p := startCommand(t, []with{backend, session}, "sh", args...)
			tty.reads(p, "pid")
			tty.press("one\n")
			assert.Equal(t, "one", tty.reads(p, "read"))
			assert.Equal(t, "0", tty.reads(p, "status"))
			tty.press("two\n")
			assert.Equal(t, "two", tty.reads(p, "shell read"))
			assert.Equal(t, 0, p.wait())
			assert.Empty(t, p.said())
		})
	}
}

func TestTerminalIsGivenBackWhenTheCommandCannotRun(t *testing.T) {
	broken := t.TempDir() + "/broken"
	require.NoError(t, os.WriteFile(broken, []byte("no program\n"), 0o700))
	tty := newPty(t)
	p := startCommand(t, []with{fileBackend(t), tty.whole}, "sh", "-c",
		`"$0" run a -- "$1"; echo status $?; read line; echo shell read $line`, binary, broken)
	tty.sees("status 126")
	tty.press("two\n")
	tty.sees("shell read two")
	assert.Equal(t, 0, p.wait())
}

func TestJobInTheBackgroundGetsTheTerminalWhenItComesToTheForeground(t *testing.T) {
	// Some shells send CONT to a job that runs already, some do not.
	for _, shell := range shells(t) {
		t.Run(shell, func(t *testing.T) {
			tty := newPty(t)
			all := func(c *exec.Cmd) {
				tty.whole(c)
				c.Stderr = tty.slave
			}
			args := append([]string{"-c", `set -m; "$0" "$@" & read line; echo shell read $line; fg`,
				binary}, locked(nil, "a", "read")...)
			p := startCommand(t, []with{fileBackend(t), all}, shell, args...)
			tty.sees("pid ")
			child := number(t, strings.TrimSpace(tty.sees("\n")))
			tty.sees("waits for the terminal")
			tty.press("one\n")
			tty.sees("shell read one")
			require.Eventually(t, func() bool { return tty.foreground() == child }, patience,
				time.Millisecond)
			tty.press("two\n")
			tty.sees("read two")
			assert.Equal(t, 0, p.wait())
		})
	}
}
