//go:build unix

package main

import (
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// terminal is the controlling terminal; nil if there is none.
type terminal struct {
	f      *os.File
	handed bool // the command's group has been put into the foreground
}

func openTerminal() *terminal {
	f, err := os.OpenFile("/dev/tty", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil
	}
	return &terminal{f: f}
}

func (t *terminal) close() {
	if t != nil {
		_ = t.f.Close()
	}
}

// handOver makes the command start in the foreground if locker is in the foreground
// and its stdin is the terminal. In a pipeline it does not: another program of the
// pipeline may need the terminal (a pager), and the command gets it when it asks
// (giveTo).
func (t *terminal) handOver(attr *syscall.SysProcAttr) {
	if t == nil || !isTerminal(syscall.Stdin) || isPipe(syscall.Stdout) || t.group() != syscall.Getpgrp() {
		return
	}
	attr.Foreground = true
	attr.Ctty = int(t.f.Fd())
	t.handed = true
}

// giveTo puts group into the foreground if locker is in the foreground, and reports
// whether group is there now.
func (t *terminal) giveTo(group int) bool {
	if t == nil {
		return false
	}
	switch t.group() {
	case group:
		return true
	case syscall.Getpgrp():
		t.handed = t.set(group)
		return t.handed
	}
	return false
}

// takeBack undoes handOver and giveTo, and reports whether there was anything to
// undo.
func (t *terminal) takeBack() bool {
	if t == nil || !t.handed {
		return false
	}
	ignoreTerminalOutput()
	t.set(syscall.Getpgrp())
	t.handed = false
	return true
}

// group is the process group in the foreground; 0 if that is not known.
func (t *terminal) group() int {
	group, err := unix.IoctlGetInt(int(t.f.Fd()), unix.TIOCGPGRP)
	if err != nil {
		return 0
	}
	return group
}

func (t *terminal) set(group int) bool {
	return unix.IoctlSetPointerInt(int(t.f.Fd()), unix.TIOCSPGRP, group) == nil
}

// ignoreTerminalOutput lets locker write to its terminal, and take it back,
// from the background.
func ignoreTerminalOutput() { signal.Ignore(syscall.SIGTTOU) }

// isTerminal reports whether fd is the controlling terminal.
func isTerminal(fd int) bool {
	_, err := unix.IoctlGetInt(fd, unix.TIOCGPGRP)
	return err == nil
}

func isPipe(fd int) bool {
	var st unix.Stat_t
	return unix.Fstat(fd, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFIFO
}
