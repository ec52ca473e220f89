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

// pass does with the signal what would have become of it without locker. It
// returns if locker is not to die of it: an exit status of 128+n says the same.
//
// From the keyboard, SIGINT and SIGQUIT are for the script around the command,
// too. It is in locker's process group, and has not got them if only the
// command's was in the foreground. And a shell that has got SIGINT ends for it
// only if what it ran has died of it: an exit status means to it that somebody
// has dealt with it. Without a terminal there is no keyboard.
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
			// Shells do not ask what became of locker, and the runtime would
			// write down its goroutines.
			signal.Ignore(syscall.SIGQUIT)
			_ = syscall.Kill(0, syscall.SIGQUIT)
		}
	}
}

// number is the signal's number.
func number(sig os.Signal) int { return int(sig.(syscall.Signal)) }
