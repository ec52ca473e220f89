package lab

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

// memory returns where data are kept in memory that need not outlive the machine, if several servers have room there;
// "": nowhere. On a disk, copying the files of a new database takes five times as long, and all wait for each other.
func memory() string {
	const dir, room = "/dev/shm", 2 << 30
	var has syscall.Statfs_t
	if err := syscall.Statfs(dir, &has); err != nil || has.Bavail*uint64(has.Bsize) < room {
		return ""
	}
	return dir
}

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
