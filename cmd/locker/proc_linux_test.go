package main_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// zombie reports whether a process has ended and was not waited for yet.
func zombie(pid int) bool { return state(pid) == 'Z' || state(pid) == 'X' }

// state is the letter with which the kernel describes a process; X if there is none.
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

// guardOf returns the process ID of the guard of a command, which is its parent.
func guardOf(t *testing.T, command int) (guard int) {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", command))
	require.NoError(t, err)
	guard = number(t, strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))[1])
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", guard))
	require.NoError(t, err)
	require.Contains(t, string(line), "__guard")
	return guard
}

// childOf is a child of a process; 0 if it has none.
func childOf(pid int) (child int) {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, file := range threads {
		b, _ := os.ReadFile(file)
		if _, err := fmt.Sscan(string(b), &child); err == nil {
			return child
		}
	}
	return 0
}

// As under flock(1), a command runs where /proc is not mounted, such as in a chroot.
func TestCommandRunsWithoutProc(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can unmount it")
	}
	script := `mount --make-rprivate / && umount -l /proc && exec "$0" run a -- sh -c "[ ! -e /proc/self ] && echo ran"`
	p := startCommand(t, []with{fileBackend(t)}, "unshare", "-m", "sh", "-c", script, binary)
	p.expect("ran")
	assert.Equal(t, 0, p.wait())
	p = startCommand(t, []with{fileBackend(t)}, "unshare", "-m", "bash", "-c",
		`mount --make-rprivate / && umount -l /proc && exec -a locker-of-nowhere "$0" run a -- true`, binary)
	assert.Equal(t, 126, p.wait())
	assert.Contains(t, p.said(), "mount /proc")
}
