//go:build unix

package main

import (
	"os"
	"os/signal"
	"syscall"
	"time"
)

// passedOn are the signals that locker passes on to the command.
var passedOn = []syscall.Signal{
	syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM,
	syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGALRM, syscall.SIGWINCH, syscall.SIGCONT,
}

// notify sends the signals that locker handles to c. Signals that its caller ignores
// (nohup, a background job of a script) stay ignored, for the command too.
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
	switch sig {
	case syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM:
		return true
	}
	return false
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

// number is the signal's number.
func number(sig os.Signal) int { return int(sig.(syscall.Signal)) }
