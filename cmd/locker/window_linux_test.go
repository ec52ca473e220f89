package main_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func init() { roles["beat"] = beat }

// beat writes the time into a file every few ms, for so long. So does a process that it starts and that leaves its
// process group.
func beat(args []string) int {
	file, err := os.OpenFile(args[0], os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return 96
	}
	length, _ := time.ParseDuration(args[1])
	_, _ = fmt.Fprintln(file, time.Now().UnixNano())
	var child *exec.Cmd
	if !slices.Contains(args, "alone") {
		child = exec.CommandContext(context.Background(), os.Args[0], roleArg, "beat", args[0], args[1], "alone")
		child.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if child.Start() != nil {
			return 97
		}
	}
	for end := time.Now().Add(length); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		_, _ = fmt.Fprintln(file, time.Now().UnixNano())
	}
	if child != nil {
		_ = child.Process.Kill()
		_ = child.Wait()
	}
	return 0
}

// beats are the first and the last time that was written; 0 if none was.
func beats(t *testing.T, file string) (first, last int64) {
	t.Helper()
	text, err := os.ReadFile(file)
	if os.IsNotExist(err) {
		return 0, 0
	}
	require.NoError(t, err)
	for line := range strings.Lines(string(text)) {
		at, _ := strconv.ParseInt(strings.TrimSpace(line), 10, 64)
		if first == 0 {
			first = at
		}
		last = max(last, at)
	}
	return first, last
}

// The windows between the grant and the command: in each, locker's lease may end before somebody is able to end
// the command.
var windows = map[string]func(locker int, file string) bool{
	"the guard starts":           func(locker int, _ string) bool { return childOf(locker) != 0 },
	"the command is at its gate": func(locker int, _ string) bool { return childOf(childOf(locker)) != 0 },
	"the command begins": func(_ int, file string) bool {
		_, err := os.Stat(file)
		return err == nil
	},
}

// In whatever moment locker or its guard is stopped or killed, its command does not run when the next one does.
func TestNoMomentLetsTwoCommandsRunAtOnce(t *testing.T) {
	t.Parallel()
	s := startService(t)
	for window, open := range windows {
		for _, sig := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGKILL} {
			for _, whom := range []string{"locker", "guard"} {
				attack := fmt.Sprintf("%s, %v to %s", window, sig, whom)
				t.Run(attack, func(t *testing.T) {
					t.Parallel()
					dir := t.TempDir()
					run := func(name, ttl, length string) *process {
						return start(t, []with{s.direct()}, locked([]string{"--ttl", ttl}, attack, "beat",
							filepath.Join(dir, name), length)...)
					}
					one := run("one", "2s", "5s")
					locker, pid := one.cmd.Process.Pid, 0
					for !open(locker, filepath.Join(dir, "one")) {
						require.True(t, one.running(), one.said())
						time.Sleep(time.Millisecond)
					}
					if pid = locker; whom == "guard" {
						pid = childOf(locker)
					}
					require.NoError(t, syscall.Kill(pid, sig))
					if pid != locker && sig == syscall.SIGSTOP {
						require.Eventually(t, func() bool { return state(pid) != 'T' }, patience, time.Millisecond,
							"locker continues its guard")
					}
					two := run("two", "8s", "300ms")
					assert.Equal(t, 0, two.wait(), two.said())
					one.signal(syscall.SIGCONT)
					status := one.wait()
					_, last := beats(t, filepath.Join(dir, "one"))
					first, _ := beats(t, filepath.Join(dir, "two"))
					assert.Less(t, last, first, "two at once")
					if pid == locker && sig == syscall.SIGSTOP {
						assert.Equal(t, 74, status)
					}
				})
			}
		}
	}
}
