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

// pass gives the signal the effect that it would have had without locker. It returns
// if locker need not die of the signal: an exit status of 128+n says the same.
//
// SIGINT and SIGQUIT from the keyboard are also for the script around the command.
// The script is in locker's process group, and did not get them if only the command's
// group was in the foreground. And a shell that got SIGINT ends only if its child has
// died of SIGINT: an exit status tells it that the child has handled the signal.
// Without a terminal there is no keyboard.
func (d death) pass() {
	tty := openTerminal()
	if tty == nil {
		return
	}
	tty.close()
	switch d.sig {
	case syscall.SIGINT:
		if syscall.Getpid() == 1 {
			// The kernel does not let the first process of a container die of it.
			signal.Ignore(syscall.SIGINT)
		}
		whom := syscall.Getpid()
		if d.unheard {
			whom = 0 // the process group
		}
		if syscall.Kill(whom, syscall.SIGINT) == nil && !signal.Ignored(syscall.SIGINT) {
			time.Sleep(time.Second) // another thread may be the one to get it
		}
	case syscall.SIGQUIT:
		if d.unheard {
			// Shells do not look at how locker ended, and the runtime would print its
			// goroutines.
			signal.Ignore(syscall.SIGQUIT)
			_ = syscall.Kill(0, syscall.SIGQUIT)
		}
	}
}

// number is the signal's number.
func number(sig os.Signal) int { return int(sig.(syscall.Signal)) }
