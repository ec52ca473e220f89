package main_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func init() { roles["mourned"], roles["undertaker"] = mourned, undertaker }

// mourned has a process in its group whose end, after SIGKILL, is up to an undertaker.
func mourned([]string) int {
	child := exec.CommandContext(context.Background(), os.Args[0], roleArg, "undertaker", strconv.Itoa(syscall.Getpgrp()))
	child.Stdout, child.SysProcAttr = os.Stdout, &syscall.SysProcAttr{Setpgid: true}
	fmt.Printf("pid %d\n", os.Getpid())
	if err := child.Start(); err != nil {
		return 97
	}
	select {}
}

// undertaker starts a process in a group. The kernel stops it at its end, as one that writes to a disk that is slow,
// until USR1.
func undertaker(args []string) int {
	of, _ := strconv.Atoi(args[0])
	told := make(chan os.Signal, 1)
	signal.Notify(told, syscall.SIGUSR1)
	runtime.LockOSThread() // which traces
	child := exec.CommandContext(context.Background(), "sleep", "1000")
	child.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pgid: of, Ptrace: true}
	if err := child.Start(); err != nil {
		return 97
	}
	pid := child.Process.Pid
	_, _ = syscall.Wait4(pid, nil, 0, nil)
	if syscall.PtraceSetOptions(pid, syscall.PTRACE_O_TRACEEXIT) != nil || syscall.PtraceCont(pid, 0) != nil {
		return 96
	}
	fmt.Printf("undertaker %d\n", os.Getpid())
	<-told
	return 0 // which leaves the process to its end, and to init
}

// SIGKILL may take a while: the lock is kept until the last member of the group has ended.
func TestLockIsKeptWhileAProcessOfAKilledGroupIsLeft(t *testing.T) {
	t.Parallel()
	for what, ttl := range map[string]string{"for a while": "20s", "longer than the TTL": "3s"} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s, buried := startService(t), what == "for a while"
			p := start(t, []with{s.through()}, locked([]string{"--ttl", ttl}, "a", "mourned")...)
			parent, undertaker := number(t, p.expect("pid")), number(t, p.expect("undertaker"))
			t.Cleanup(func() { _ = syscall.Kill(undertaker, syscall.SIGKILL) })
			require.NoError(t, syscall.Kill(awaitGuard(t, parent), syscall.SIGKILL))
			require.Eventually(t, func() bool { return syscall.Kill(parent, 0) != nil }, patience,
				time.Millisecond, "its locker has waited for it")
			if buried {
				assert.Never(t, func() bool { return !s.kept(t) }, 500*time.Millisecond, 5*time.Millisecond)
				require.NoError(t, syscall.Kill(undertaker, syscall.SIGUSR1))
			}
			assert.Equal(t, 74, p.wait())
			assert.Equal(t, !buried, s.kept(t), "what is left is left to the TTL")
			assert.Equal(t, !buried, strings.Contains(p.said(), "the lock is not released"))
		})
	}
}

// As the first process of a container, locker inherits orphans, which would
// stay as zombies for ever.
func TestFirstProcessOfAContainerReapsOrphans(t *testing.T) {
	alone := func(c *exec.Cmd) {
		c.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWPID | syscall.CLONE_NEWNS,
			UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
		}
	}
	probe := exec.CommandContext(t.Context(), "true")
	alone(probe)
	if err := probe.Run(); err != nil {
		t.Skipf("this system lets nobody make a process namespace: %v", err)
	}
	// The orphan's parent ends first; then the orphan, which kill -0 finds as
	// long as nobody has reaped it.
	const script = `
		orphan=$(sh -c 'sleep 0.05 >/dev/null & echo $!')
		[ $$ -gt 1 ] || exit 9
		for i in $(seq 500); do kill -0 "$orphan" 2>/dev/null || { echo reaped; exit 0; }; sleep 0.01; done
		exit 8`
	r := do(t, []with{fileBackend(t), alone}, "run", "a", "--", "sh", "-c", script)
	assert.Equal(t, result{0, "reaped", ""}, r)
}

// An answer that nobody gets is neither a success nor a wrong command line.
func TestAnAnswerThatCannotBeWritten(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	require.NoError(t, err)
	defer full.Close()
	backend := []with{fileBackend(t), func(cmd *exec.Cmd) { cmd.Stdout = full }}
	for _, args := range [][]string{{"inspect", "a"}, {"inspect", "--json", "a"}, {"break", "--yes", "a"},
		{"check"}, {"backends"}} {
		p := start(t, backend, args...)
		assert.Equal(t, 73, p.wait(), args)
		assert.Equal(t, "locker: write /dev/stdout: no space left on device\n", p.said(), args)
	}
}
