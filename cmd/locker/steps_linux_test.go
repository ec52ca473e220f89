package main_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/golockers/locker/internal/lab"
	"github.com/stretchr/testify/assert"
	"golang.org/x/sys/unix"
)

func init() { roles["halt"] = halt }

// halt starts a locker and stops it at the given system call, counted from the first sign that it is about to start
// its guard. It returns 1 if the command has begun before. When it ends, the kernel lets the locker go.
func halt(args []string) int {
	at, _ := strconv.Atoi(args[0])
	runtime.LockOSThread() // which traces
	c := exec.CommandContext(context.Background(), args[2], args[3:]...)
	c.Stderr, c.SysProcAttr = os.Stderr, &syscall.SysProcAttr{Ptrace: true}
	if c.Start() != nil {
		return 97
	}
	locker := c.Process.Pid
	fmt.Printf("locker %d\n", locker)
	_, _ = syscall.Wait4(locker, nil, 0, nil)
	_ = syscall.PtraceSetOptions(locker, syscall.PTRACE_O_TRACESYSGOOD|syscall.PTRACE_O_TRACECLONE)
	_ = syscall.PtraceSyscall(locker, 0)
	for steps := -1; ; {
		var ws syscall.WaitStatus
		thread, err := syscall.Wait4(-1, &ws, syscall.WALL, nil)
		if _, begun := os.Stat(args[1]); err != nil || begun == nil {
			_ = syscall.Kill(locker, syscall.SIGTERM)
			return 1
		}
		deliver := 0
		switch sig := ws.StopSignal(); {
		case !ws.Stopped():
			continue
		case sig == syscall.SIGTRAP|0x80:
			number, arg, entry := systemCall(thread)
			if entry && (steps >= 0 || number == unix.SYS_PRCTL && arg == unix.PR_SET_CHILD_SUBREAPER) {
				steps++
			}
			if steps == at {
				_ = syscall.Kill(locker, syscall.SIGSTOP)
				return 0
			}
		case sig != syscall.SIGTRAP && sig != syscall.SIGSTOP:
			deliver = int(sig)
		}
		_ = syscall.PtraceSyscall(thread, deliver)
	}
}

// TestProveAStopAtEachStepLetsNoTwoCommandsRun stops locker at each of its system calls from the first after the last
// look at its lease to the first act of its command, until the next holder has had the lock.
func TestProveAStopAtEachStepLetsNoTwoCommandsRun(t *testing.T) {
	lab.NeedProve(t)
	s := startService(t)
	var next, early atomic.Int64
	var all sync.WaitGroup
	for range 6 {
		all.Go(func() {
			for early.Load() < 6 && !t.Failed() { // then the command begins before so many calls
				at, dir := strconv.Itoa(int(next.Add(1)-1)), t.TempDir()
				run := func(name, ttl, length string) []string {
					return locked([]string{"--ttl", ttl}, at, "beat", filepath.Join(dir, name), length)
				}
				one := startCommand(t, []with{s.direct()}, os.Args[0], append(append(command("halt")[1:], at,
					filepath.Join(dir, "one"), binary), run("one", "2s", "6s")...)...)
				locker := number(t, one.expect("locker"))
				if one.wait() != 0 {
					early.Add(1)
					continue
				}
				two := start(t, []with{s.direct()}, run("two", "8s", "300ms")...)
				assert.Equal(t, 0, two.wait(), two.said())
				assert.Equal(t, byte('T'), state(locker))
				_ = syscall.Kill(locker, syscall.SIGCONT)
				assert.Eventually(t, func() bool { return gone(locker) }, patience, time.Millisecond)
				_, last := beats(t, filepath.Join(dir, "one"))
				first, _ := beats(t, filepath.Join(dir, "two"))
				assert.Less(t, last, first, "two at once at step %s", at)
			}
		})
	}
	all.Wait()
	t.Logf("%d steps", next.Load()-early.Load())
	assert.Greater(t, next.Load(), int64(20), "too few to prove anything")
}

// systemCall is the call that a thread is about to make, or has made.
func systemCall(thread int) (number, arg uint64, entry bool) {
	const get, isEntry = 0x420e, 1 // PTRACE_GET_SYSCALL_INFO
	var info struct {
		op               uint8
		_                uint32
		ip, sp, nr, arg0 uint64
	}
	_, _, _ = syscall.RawSyscall6(syscall.SYS_PTRACE, get, uintptr(thread), unsafe.Sizeof(info),
		uintptr(unsafe.Pointer(&info)), 0, 0)
	return info.nr, info.arg0, info.op == isEntry
}
