//go:build unix

package main_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"golang.org/x/sys/unix"
)

// The commands that locker runs in these tests are the test binary itself, in
// a role: what they do and say is exact, where a shell's traps are late.

const roleArg = "role"

// command is the command line of a role.
func command(role string, args ...string) []string {
	return append([]string{os.Args[0], roleArg, role}, args...)
}

// locked is the command line of locker for a role.
func locked(flags []string, name, role string, args ...string) []string {
	return slices.Concat([]string{"run"}, flags, []string{name, "--"}, command(role, args...))
}

// holding starts a locker that holds the lock "a" for a listener.
func holding(t *testing.T, setup []with, flags ...string) *process {
	t.Helper()
	p := start(t, setup, locked(flags, "a", "listen")...)
	p.expect("group")
	return p
}

// end ends a locker whose command ends in good order when it is told to.
func (p *process) end() {
	p.t.Helper()
	p.signal(syscall.SIGTERM)
	assert.Equal(p.t, 0, p.wait())
}

// roles are what the test binary does as a command.
var roles = map[string]func(args []string) int{
	"shut": shut, "listen": listen, "family": family, "meet": meet, "leave": leave, "read": readTerminal,
}

func playRole(role string, args []string) int {
	// No role outlives its test for long, whatever happens.
	time.AfterFunc(2*patience, func() { os.Exit(99) })
	return roles[role](args)
}

// listen says what it is, and then each signal that it gets. TERM ends it with status 0, unless "stubborn" is
// among args; HUP always ends it with 3, and INT if "obedient" is among args.
func listen(args []string) int {
	c := make(chan os.Signal, 10)
	for _, sig := range []os.Signal{
		syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGUSR1,
		syscall.SIGUSR2, syscall.SIGALRM, syscall.SIGWINCH, syscall.SIGCONT,
	} {
		if !signal.Ignored(sig) {
			signal.Notify(c, sig)
		}
	}
	fmt.Printf("pid %d\n", os.Getpid())
	fmt.Printf("group %d\n", syscall.Getpgrp())
	for {
		sig := (<-c).(syscall.Signal)
		fmt.Printf("got %s\n", unix.SignalName(sig))
		switch {
		case sig == syscall.SIGTERM && !slices.Contains(args, "stubborn"):
			return 0
		case sig == syscall.SIGHUP, sig == syscall.SIGINT && slices.Contains(args, "obedient"):
			return 3
		}
	}
}

// shut is a command that closes all descriptors that it was given but the first three, as sudo and daemons do.
func shut(args []string) int {
	for fd := 3; fd < 256; fd++ {
		syscall.CloseOnExec(fd)
	}
	_ = syscall.Exec(args[0], args, os.Environ())
	return 126
}

// family starts a stubborn listener of its own, and says who they are. It makes a process group, as
// timeout(1) and interactive shells do: that must not take it out of locker's reach.
func family([]string) int {
	if err := syscall.Setpgid(0, 0); err != nil {
		return 96
	}
	fmt.Printf("pid %d\n", os.Getpid())
	_ = stubborn("child", nil).Wait()
	select {} // what ended the child is on its way to this one
}

// stubborn starts a stubborn listener, and says who that is.
func stubborn(what string, attr *syscall.SysProcAttr) *exec.Cmd {
	child := exec.CommandContext(context.Background(), os.Args[0], roleArg, "listen", "stubborn")
	child.Stdin, child.SysProcAttr = os.Stdin, attr
	if err := child.Start(); err != nil {
		os.Exit(97)
	}
	fmt.Printf("%s %d\n", what, child.Process.Pid)
	return child
}

// meet says which of the processes it meets.
func meet(pids []string) int {
	for _, s := range pids {
		if pid, err := strconv.Atoi(s); err != nil || !gone(pid) {
			fmt.Println("met", s)
			return 1
		}
	}
	fmt.Println("alone")
	return 0
}

// leave ends, with "later" among args only when it gets SIGUSR1, and leaves something behind that goes on.
func leave(args []string) int {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGUSR1)
	stubborn("child", &syscall.SysProcAttr{Setsid: true})
	fmt.Printf("pid %d\n", os.Getpid())
	if slices.Contains(args, "later") {
		<-c
	}
	return 0
}

// readTerminal reads a line from its stdin and says it.
func readTerminal([]string) int {
	fmt.Printf("pid %d\n", os.Getpid())
	var line string
	if _, err := fmt.Scanln(&line); err != nil {
		fmt.Println("error", err)
		return 1
	}
	fmt.Printf("read %s\n", line)
	return 0
}

// shellStatus is wait as a shell has it in $?.
func (p *process) shellStatus() int {
	p.t.Helper()
	if status := p.wait(); status >= 0 {
		return status
	}
	return 128 + int(diedOf(p))
}

// diedOf is the signal that has ended a process; 0 if none has.
func diedOf(p *process) syscall.Signal {
	ws := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	if !ws.Signaled() {
		return 0
	}
	return ws.Signal()
}

// gone reports whether there is no such process, or only its remains.
func gone(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return true
	}
	return zombie(pid)
}

// listenToHangups undoes what nohup does to those that it starts: programs
// inherit that a signal is ignored, but not that somebody listens to it.
func listenToHangups() { signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP) }
