package main_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// zombie reports whether a process has ended and was not waited for yet.
func zombie(pid int) bool { return state(pid) == 'Z' || state(pid) == 'X' }

// state is the letter with which the kernel describes a process; X if there
// is none.
func state(pid int) byte {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 'X'
	}
	return stat[bytes.LastIndexByte(stat, ')')+2]
}

// awaitWaiting returns when a locker waits for a lock of the file backend.
func awaitWaiting(t *testing.T, p *process) {
	t.Helper()
	awaitWaitingPid(t, strconv.Itoa(p.cmd.Process.Pid))
}

func awaitWaitingPid(t *testing.T, pid string) {
	t.Helper()
	require.Eventually(t, func() bool {
		locks, err := os.ReadFile("/proc/locks")
		require.NoError(t, err)
		for l := range strings.Lines(string(locks)) {
			if f := strings.Fields(l); len(f) > 5 && f[1] == "->" && slices.Contains(f, pid) {
				return true
			}
		}
		return false
	}, patience, time.Millisecond, "it should wait in the kernel's queue")
}

// awaitGuard returns the process ID of the guard that is in the process group, when there
// is one.
func awaitGuard(t *testing.T, group int) (guard int) {
	t.Helper()
	require.Eventually(t, func() bool {
		all, err := filepath.Glob("/proc/[0-9]*/cmdline")
		require.NoError(t, err)
		for _, file := range all {
			line, _ := os.ReadFile(file)
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
			if bytes.Contains(line, []byte("__guard")) {
				if of, err := syscall.Getpgid(pid); err == nil && of == group {
					guard = pid
					return true
				}
			}
		}
		return false
	}, patience, time.Millisecond, "a guard should be in the group of the command")
	return guard
}
