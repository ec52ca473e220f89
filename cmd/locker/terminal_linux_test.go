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

// whole is session with stdout on the terminal, too. The test reads the command's output
// from there.
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

// sees waits until text stands on the terminal, and returns what stands before
// it since the last time.
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

const (
	ctrlC = "\x03"
	ctrlZ = "\x1a"
)

func TestCommandHasTheTerminal(t *testing.T) {
	// With and without a guard beside the command.
	for _, service := range []string{"file", "redis"} {
		t.Run(service, func(t *testing.T) {
			backend := withEnv("LOCKER_BACKEND=" + services[service](t))
			tty := newPty(t)
			p := start(t, []with{backend, tty.whole}, locked(nil, "a", "read")...)
			tty.sees("pid ")
			child := number(t, strings.TrimSpace(tty.sees("\n")))
			assert.Equal(t, child, tty.foreground())
			tty.press("hello\n")
			tty.sees("read hello")
			assert.Equal(t, 0, p.wait())
			assert.Empty(t, p.said())
		})
	}
}

func TestCtrlCReachesTheCommandOnce(t *testing.T) {
	t.Run("in the foreground", func(t *testing.T) {
		tty := newPty(t)
		p := start(t, []with{fileBackend(t), tty.whole}, locked(nil, "a", "listen", "stubborn")...)
		tty.sees("group ")
		tty.press(ctrlC)
		tty.sees("got SIGINT")
		p.signal(syscall.SIGUSR1)
		assert.NotContains(t, tty.sees("got SIGUSR1"), "SIGINT")
		p.signal(syscall.SIGHUP)
		assert.Equal(t, 3, p.wait())
	})
	t.Run("in a pipeline", func(t *testing.T) {
		tty := newPty(t)
		p := start(t, []with{fileBackend(t), tty.session}, locked(nil, "a", "listen", "stubborn")...)
		p.expect("group")
		assert.Equal(t, p.cmd.Process.Pid, tty.foreground(), "the terminal may be for a neighbour")
		tty.press(ctrlC)
		assert.Equal(t, "SIGINT", p.expect("got"))
		p.signal(syscall.SIGUSR1)
		assert.Equal(t, "SIGUSR1", p.expect("got"))
		p.signal(syscall.SIGHUP)
		assert.Equal(t, 3, p.wait())
	})
}

func TestCtrlCEndsTheWait(t *testing.T) {
	tty := newPty(t)
	backend := fileBackend(t)
	holder := start(t, []with{backend}, locked(nil, "a", "listen")...)
	holder.expect("group")
	p := start(t, []with{backend, tty.whole}, "run", "a", "--", "true")
	awaitWaiting(t, p)
	tty.press(ctrlC)
	assert.Equal(t, 128+2, p.shellStatus())
}

func TestCtrlZDoesNotStopTheCommand(t *testing.T) {
	for _, where := range []string{"foreground", "pipeline"} {
		t.Run(where, func(t *testing.T) {
			tty := newPty(t)
			session := tty.whole
			if where == "pipeline" {
				session = tty.session
			}
			p := start(t, []with{fileBackend(t), session}, locked(nil, "a", "listen")...)
			if where == "pipeline" {
				p.expect("group")
			} else {
				tty.sees("group ")
			}
			tty.press(ctrlZ)
			p.expectSaid("not stopped")
			assert.NotEqual(t, byte('T'), state(p.cmd.Process.Pid), "who renews the lock must not be stopped")
			p.signal(syscall.SIGTERM)
			assert.Equal(t, 0, p.wait())
		})
	}
}

func TestTerminalIsGivenWhenTheCommandAsksForIt(t *testing.T) {
	// locker run x -- ssh host | tee log
	tty := newPty(t)
	p := start(t, []with{fileBackend(t), tty.session}, locked(nil, "a", "read")...)
	p.expect("pid")
	tty.press("hello\n")
	assert.Equal(t, "hello", p.expect("read"))
	assert.Equal(t, 0, p.wait())
	assert.Empty(t, p.said())
}

func TestTerminalIsGivenBack(t *testing.T) {
	tty := newPty(t)
	script := `"$0" "$@"; echo status $?; read line; echo shell read $line`
	for _, session := range []with{tty.whole, tty.session} {
		args := append([]string{"-c", script, binary}, locked(nil, "a", "read")...)
		p := startCommand(t, []with{fileBackend(t), session}, "sh", args...)
		see := func(text string) {
			t.Helper()
			if p.cmd.Stdout == tty.slave {
				tty.sees(text)
			} else {
				p.expect(text)
			}
		}
		see("pid")
		tty.press("one\n")
		see("read one")
		see("status 0")
		tty.press("two\n")
		see("shell read two")
		assert.Equal(t, 0, p.wait())
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
	for _, shell := range []string{"dash", "bash"} {
		t.Run(shell, func(t *testing.T) {
			if _, err := exec.LookPath(shell); err != nil {
				t.Skip(err)
			}
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
