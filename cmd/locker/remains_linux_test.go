package main_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/golockers/locker/internal/lab"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// mourn keeps what is left of a process that ends, as if it still wrote to a slow disk, until bury is called.
func mourn(t *testing.T, pid int) (bury func()) {
	t.Helper()
	return trace(t, func() error { return unix.PtraceSeize(pid) }, pid)
}

// freeze stops all threads of a process, which no signal but SIGKILL changes.
func freeze(t *testing.T, pid int) (bury func()) {
	t.Helper()
	return trace(t, func() error {
		threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
		for _, thread := range threads {
			id, _ := strconv.Atoi(thread.Name())
			err = errors.Join(err, unix.PtraceSeize(id), unix.PtraceInterrupt(id))
		}
		return err
	}, pid)
}

func trace(t *testing.T, seize func() error, pid int) (bury func()) {
	t.Helper()
	told, seized := make(chan struct{}), make(chan error)
	go func() {
		runtime.LockOSThread() // which traces the process
		defer runtime.UnlockOSThread()
		seized <- seize()
		<-told
		var ws syscall.WaitStatus
		for _, err := syscall.Wait4(pid, &ws, syscall.WALL, nil); err == nil && ws.Stopped(); {
			_, err = syscall.Wait4(pid, &ws, syscall.WALL, nil)
		} // what is left goes to its parent
	}()
	bury = sync.OnceFunc(func() { close(told) })
	t.Cleanup(bury)
	if err := <-seized; err != nil {
		t.Skipf("this system lets nobody trace another's child: %v", err)
	}
	return bury
}

// SIGKILL may take a while: the lock is kept until the last process that the command has started has ended.
func TestLockIsKeptWhileAProcessOfAKilledCommandIsLeft(t *testing.T) {
	t.Parallel()
	for what, ttl := range map[string]string{"for a while": "20s", "longer than the TTL": "3s"} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s, buried := startService(t), what == "for a while"
			p := start(t, []with{s.through()}, locked([]string{"--ttl", ttl}, "a", "family")...)
			parent, child := number(t, p.expect("pid")), number(t, p.expect("child"))
			bury := mourn(t, child)
			require.NoError(t, syscall.Kill(guardOf(t, parent), syscall.SIGKILL))
			require.Eventually(t, func() bool { return syscall.Kill(parent, 0) != nil }, patience,
				time.Millisecond, "its locker has waited for it")
			if buried {
				assert.Never(t, func() bool { return !s.kept(t) }, 500*time.Millisecond, 5*time.Millisecond)
				bury()
			}
			assert.Equal(t, 74, p.wait())
			assert.Contains(t, p.said(), "its guard was killed: sent SIGKILL")
			assert.Equal(t, !buried, s.kept(t), "what is left is left to the TTL")
			assert.Equal(t, !buried, strings.Contains(p.said(), "the lock is not released"))
		})
	}
}

// A command does not go on without its lock when its guard cannot run, and locker does not wait for ever for a process
// that SIGKILL does not end.
func TestCommandEndsWithoutItsGuardAndLockerWithoutItsCommand(t *testing.T) {
	t.Parallel()
	for _, what := range []string{"guard", "command"} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s := startService(t)
			p := start(t, []with{s.through()}, locked(shortTTL, "a", "listen", "stubborn")...)
			pid := number(t, p.expect("pid"))
			next := s.next(t, pid)
			if what == "guard" {
				freeze(t, guardOf(t, pid))
			} else {
				mourn(t, pid)
			}
			s.proxy.Set(lab.Hold)
			isAlone(t, next)
			assert.Equal(t, 74, p.wait())
			assert.Contains(t, p.said(), "sent SIGKILL")
		})
	}
}

// While locker is stopped, the kernel ends a command whose guard is killed. No signal that it can ignore ends a guard, such
// as that of a service manager to all processes.
func TestCommandEndsWithItsGuardWhileLockerIsStopped(t *testing.T) {
	p := start(t, []with{fileBackend(t)}, locked(nil, "a", "listen", "stubborn")...)
	pid, locker := number(t, p.expect("pid")), p.cmd.Process.Pid
	guard := guardOf(t, pid)
	p.signal(syscall.SIGSTOP)
	require.Eventually(t, func() bool { return state(locker) == 'T' }, patience, time.Millisecond)
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGHUP, syscall.SIGINT, syscall.SIGUSR1} {
		require.NoError(t, syscall.Kill(guard, sig))
	}
	require.Never(t, func() bool { return gone(guard) }, 100*time.Millisecond, 5*time.Millisecond)
	require.NoError(t, syscall.Kill(guard, syscall.SIGKILL))
	require.Eventually(t, func() bool { return gone(pid) }, patience, time.Millisecond)
	p.signal(syscall.SIGCONT)
	assert.Equal(t, 74, p.wait())
}

// A signal that ends the wait for a lock also ends that for a command to begin.
func TestSignalEndsTheWaitForTheCommand(t *testing.T) {
	backend := fileBackend(t)
	for n := range 20 { // the guard may be too fast; what is frozen of it may keep its lock for a while
		name := strconv.Itoa(n)
		p := start(t, []with{backend}, locked(nil, name, "listen")...)
		guard := 0
		require.Eventually(t, func() bool {
			guard = childOf(p.cmd.Process.Pid)
			line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", guard))
			return strings.Contains(string(line), "__guard")
		}, patience, 100*time.Microsecond)
		bury := freeze(t, guard)
		begins := childOf(guard) != 0
		if p.signal(syscall.SIGTERM); begins {
			_ = syscall.Kill(guard, syscall.SIGKILL)
		}
		require.Eventually(t, func() bool { return state(guard) == 'Z' }, patience, time.Millisecond)
		if bury(); begins {
			continue
		}
		assert.Equal(t, 143, p.wait())
		assert.Empty(t, p.said())
		assert.Equal(t, 0, do(t, []with{backend}, "run", "--try", name, "--", "true").status)
		return
	}
	require.Fail(t, "no guard was frozen before its command began")
}

// setsid(1) starts another process if it leads its group, as COMMAND does, and ends before that.
func TestCommandThatLeavesItsGroup(t *testing.T) {
	play(t, []with{fileBackend(t)}, fails(7, "", "run a -- setsid --wait sh -c", "exit 7"),
		prints("", "run a -- setsid sh -c", "exit 7"))
}

// As the first process of a container, locker inherits orphans, which would stay as zombies for ever.
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
	// The orphan's parent ends first; then the orphan, which kill -0 finds as long as nobody has reaped it.
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
