package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"
)

// Child is the test binary, run again in a role of its own. The test and the child talk in lines. It is
// killed when the test ends.
type Child struct {
	*Process
	stdin *os.File

	mu sync.Mutex
	at int64 // the log was read up to here
}

// StartChild runs the test binary again in a role that its TestMain has given to [RunRole].
// It returns at once: wait with [Child.Expect] for a line by which the child says that it is ready.
// What the child says and what it writes to its standard error are in its log.
func StartChild(t TB, role string, args ...string) *Child {
	t.Helper()
	binary, err := os.Executable()
	call, failed := json.Marshal(roleCall{Role: role, Args: args})
	theirs, ours, broken := os.Pipe()
	if err = errors.Join(err, failed, broken); err != nil {
		t.Fatalf("lab: start child %s: %v", role, err)
	}
	defer theirs.Close()
	c := &Child{stdin: ours, Process: newProcess(t, "child-"+role, config{}, 0)}
	c.command = func() (*exec.Cmd, error) {
		// No arguments: the flags of the test belong to the parent, profiles and coverage for one.
		cmd := exec.CommandContext(context.Background(), binary)
		cmd.Env, cmd.Stdin = append(os.Environ(), roleEnv+"="+string(call)), theirs
		// By a pipe: a child that may write no file still speaks. What it has started in turn may keep it open.
		cmd.Stdout, cmd.WaitDelay = struct{ io.Writer }{c.log}, time.Second
		return cmd, nil
	}
	t.Cleanup(func() {
		c.Kill()
		_ = ours.Close()
	})
	if err := c.start(); err != nil {
		t.Fatalf("%v", err)
	}
	return c
}

// Expect waits for the next line that begins with prefix, and returns what follows it, without the
// space between. Other lines before it are passed over. The test fails if there is no such line within
// the timeout or the child ends.
func (c *Child) Expect(t TB, prefix string, timeout time.Duration) string {
	t.Helper()
	for deadline := time.Now().Add(timeout); ; time.Sleep(time.Millisecond) {
		running, late := c.Running(), time.Now().After(deadline) // before the look: the last lines may come since
		if line, found := c.take(prefix); found {
			return strings.TrimPrefix(strings.TrimPrefix(line, prefix), " ")
		}
		if !running || late {
			t.Fatalf("lab: %s did not say %q within %v; it runs: %v", c.name, prefix, timeout, running)
		}
	}
}

// take takes lines from the log until one begins with prefix.
func (c *Child) take(prefix string) (string, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	text := make([]byte, c.logSize()-c.at)
	n, _ := c.log.ReadAt(text, c.at)
	for line := range bytes.Lines(text[:n]) {
		said, whole := strings.CutSuffix(string(line), "\n")
		if !whole {
			break
		}
		c.at += int64(len(line))
		if strings.HasPrefix(said, prefix) {
			return strings.TrimSuffix(said, "\r"), true
		}
	}
	return "", false
}

// Send sends a line to the child. It does not wait for the child to read it, unless there is more that
// the child has not read than a pipe holds.
func (c *Child) Send(t TB, line string) {
	t.Helper()
	if _, err := fmt.Fprintln(c.stdin, line); err != nil {
		t.Fatalf("lab: send %q to %s: %v", line, c.name, err)
	}
}

// Wait waits until the child has ended, and returns its exit status: 0 when its role returned, -1 (on
// Windows 1) when it was killed. The test fails if it has not ended within the timeout. What it said
// before can still be asked for with Expect.
func (c *Child) Wait(t TB, timeout time.Duration) int {
	t.Helper()
	r, _ := c.current()
	select {
	case <-r.done:
	case <-time.After(timeout):
		t.Fatalf("lab: %s has not ended within %v", c.name, timeout)
	}
	return r.cmd.ProcessState.ExitCode()
}
