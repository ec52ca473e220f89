//go:build unix

package main

import (
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

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

// handOver puts the command's group into the foreground if locker is in the foreground and its stdin is the
// terminal. In a pipeline it does not: another program of the pipeline may need the terminal (a pager), and
// the command gets it when it asks (giveTo).
func (t *terminal) handOver(group int) {
	if t != nil && isTerminal(syscall.Stdin) && !isPipe(syscall.Stdout) {
		t.giveTo(group)
	}
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

// takeBack undoes handOver and giveTo, and reports whether there was anything to undo.
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

// ignoreTerminalOutput lets locker write to its terminal, and take it back, from the background.
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

// passedOn are the signals that locker passes on to the command.
var passedOn = []syscall.Signal{
	syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM,
	syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGALRM, syscall.SIGWINCH, syscall.SIGCONT,
}

// notify sends the signals that locker handles to c. HUP and INT stay ignored, for the command too, if its caller
// ignores them (nohup, a background job of a script). Go handles the others anyway.
func notify(c chan<- os.Signal) {
	// stderr may be a pipe that nobody reads any more: locker must not die of that.
	signal.Notify(c, syscall.SIGPIPE)
	for _, sig := range passedOn {
		if !signal.Ignored(sig) {
			signal.Notify(c, sig)
		}
	}
}

// holdStill keeps locker from being stopped (Ctrl-Z) while it has to renew a lock.
func holdStill(c chan<- os.Signal) {
	if !signal.Ignored(syscall.SIGTSTP) {
		signal.Notify(c, syscall.SIGTSTP)
	}
}

// endsWait reports whether a signal ends the wait for a lock.
func endsWait(sig os.Signal) bool {
	return slices.Contains([]os.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM}, sig)
}

// resumes reports whether a signal continues a stopped process.
func resumes(sig os.Signal) bool { return sig == syscall.SIGCONT }

// pass gives a SIGINT from the keyboard the effect that it would have had without locker. It
// is also for the script around the command, which is in locker's process group and did not
// get it if the command's group was in the foreground. And a shell that got SIGINT ends only
// if its child has died of SIGINT: an exit status says that the child has handled it.
func (d death) pass() {
	tty := openTerminal()
	if tty == nil || d.sig != syscall.SIGINT {
		return // without a terminal there is no keyboard
	}
	whom := syscall.Getpid()
	if whom == 1 {
		// The kernel does not let the first process of a container die of it.
		signal.Ignore(syscall.SIGINT)
	}
	if d.unheard {
		whom = 0 // the process group
	}
	if syscall.Kill(whom, syscall.SIGINT) == nil && !signal.Ignored(syscall.SIGINT) {
		time.Sleep(time.Second) // another thread may be the one to get it
	}
}
