//go:build unix

package main

import (
	"os"
	"os/signal"
	"syscall"
)

// passedOn are the signals that locker passes on to the command.
var passedOn = []syscall.Signal{
	syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM,
	syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGALRM, syscall.SIGWINCH, syscall.SIGCONT,
}

// notify sends to c the signals that locker does not leave to the kernel.
// Those that its caller ignores (nohup, a job of a script in the background)
// stay ignored, for the command too.
func notify(c chan<- os.Signal) {
	// stderr may be a pipe that nobody reads any more: no reason to die.
	signal.Notify(c, syscall.SIGPIPE)
	for _, sig := range passedOn {
		if !signal.Ignored(sig) {
			signal.Notify(c, sig)
		}
	}
}

// holdStill makes locker not be stopped (Ctrl-Z) while it has to renew a lock.
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

// resumes reports whether a signal lets a stopped process go on.
func resumes(sig os.Signal) bool { return sig == syscall.SIGCONT }

// number is the signal's number.
func number(sig os.Signal) int { return int(sig.(syscall.Signal)) }
