package main_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/golockers/locker/internal/lab"
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
						time.Sleep(100 * time.Microsecond)
					}
					if pid = locker; whom == "guard" {
						pid = childOf(locker)
						require.NotZero(t, pid, "which would be this process's own group")
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

// A command that was not run, since its lease ended before it could begin, keeps nobody from the work.
func TestMinHoldDoesNotKeepTheLockOfACommandThatWasTooLate(t *testing.T) {
	t.Parallel()
	backend := []with{startService(t).direct()}
	for range 20 { // the command may be too fast
		p := start(t, backend, "run", "--ttl", "1s", "--min-hold", "1h", "a", "--", "echo", "ran")
		for childOf(p.cmd.Process.Pid) == 0 && p.running() {
			time.Sleep(100 * time.Microsecond)
		}
		p.signal(syscall.SIGSTOP)
		time.Sleep(1100 * time.Millisecond) // the TTL
		p.signal(syscall.SIGCONT)
		if p.wait() != 74 || len(p.stdout()) > 0 {
			assert.Equal(t, 0, do(t, backend, "break", "--yes", "a").status)
			continue
		}
		assert.Contains(t, p.said(), "was not run")
		assert.Equal(t, 0, do(t, backend, "run", "--try", "a", "--", "true").status)
		return
	}
	assert.Fail(t, "no locker was stopped before its command began")
}

// With no fault, each renewal reaches the guard in time, however short the TTL is: no command is told to end while its
// lease lasts for longer than the time to end in. A busy machine may renew too late, and then has to end the command.
func TestProveShortTTLsAreKept(t *testing.T) {
	lab.NeedProve(t)
	s := startService(t)
	endsIn, kept := regexp.MustCompile(`ends in (\S+): `), 0
	for _, ms := range []int{200, 500, 1000, 1100, 1300, 2000, 3000, 6000} {
		ttl := time.Duration(ms) * time.Millisecond
		var all []*process
		for n := range 12 {
			name := fmt.Sprintf("%s-%d", ttl, n)
			all = append(all, start(t, []with{s.direct()}, "run", "--ttl", ttl.String(), name, "--", "sleep", "5"))
		}
		for _, p := range all {
			if p.wait() == 0 {
				kept++
			} else if told := endsIn.FindStringSubmatch(p.said()); told != nil {
				left, err := time.ParseDuration(told[1])
				require.NoError(t, err)
				assert.LessOrEqual(t, left, ttl/6, "%s: %s", ttl, p.said())
			}
		}
	}
	t.Logf("%d of 96 kept", kept)
	assert.Greater(t, kept, 48, "too few to prove anything")
}
