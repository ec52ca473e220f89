package lab

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// endWithParent makes the kernel kill the process when this one dies, however it dies. The kernel
// watches the thread that forked, not the process; the Go runtime ends a thread early only if a
// goroutine locked to it returns, which nothing in a test does.
func endWithParent(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	// In a group of its own: Ctrl-C at the terminal is for whoever started it, who then ends it in order.
	cmd.SysProcAttr.Setpgid = true
}

// guardOrphan has nothing to do: see endWithParent.
func guardOrphan(int) (func(), error) { return func() {}, nil }

// addWaits adds, for each thread of a process, how long it could have run and had no processor.
func addWaits(pid int, waits map[int]time.Duration) {
	tasks := fmt.Sprintf("/proc/%d/task/", pid)
	threads, _ := os.ReadDir(tasks)
	for _, thread := range threads {
		var ran, waited int64
		text, err := os.ReadFile(tasks + thread.Name() + "/schedstat")
		if _, bad := fmt.Sscan(string(text), &ran, &waited); err == nil && bad == nil { // else it has ended
			id, _ := strconv.Atoi(thread.Name())
			waits[id] = time.Duration(waited)
		}
	}
}

// suspended reports whether all threads of a process stand still.
func suspended(pid int) bool {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	for _, thread := range threads {
		stat, err := os.ReadFile(thread)
		if err != nil {
			continue // the thread has ended
		}
		// The state follows the name, which is in parentheses and may contain any byte.
		_, after, found := bytes.Cut(stat[bytes.LastIndexByte(stat, ')')+1:], []byte(" "))
		if !found || len(after) == 0 || after[0] != 'T' {
			return false
		}
	}
	return len(threads) > 0
}
