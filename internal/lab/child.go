package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"
)

// Child is the test binary, run again in a role of its own. The test and the child talk in lines. It is
// killed when the test ends.
type Child struct {
	*Process
	stdin *os.File
	said  *lineQueue
}

// StartChild runs the test binary again in a role that its TestMain has given to [Main] or [RunRole].
// It returns at once: wait with [Child.Expect] for a line by which the child says that it is ready.
// What the child writes to its standard error is in its log.
func StartChild(t TB, role string, args ...string) *Child {
	t.Helper()
	fail := func(err error) {
		if err != nil {
			t.Helper()
			t.Fatalf("lab: start child %s: %v", role, err)
		}
	}
	binary, err := os.Executable()
	fail(err)
	call, err := json.Marshal(roleCall{Role: role, Args: args})
	fail(err)
	theirIn, stdin, err := os.Pipe()
	fail(err)
	stdout, theirOut, err := os.Pipe()
	fail(err)

	c := &Child{stdin: stdin}
	// No arguments: the flags of the test belong to the parent, profiles and coverage for one.
	c.Process = newProcess(t, "child-"+role, t.TempDir(), func() (*exec.Cmd, error) {
		cmd := exec.CommandContext(context.Background(), binary)
		cmd.Env = append(os.Environ(), roleEnv+"="+string(call))
		cmd.Stdin, cmd.Stdout = theirIn, theirOut
		return cmd, nil
	})
	c.said = readLines(stdout, c.log)
	t.Cleanup(func() {
		c.Kill()
		_ = stdin.Close()
		_ = stdout.Close() // so that the reader ends even if a grandchild still has the other end
		<-c.said.ended
	})
	err = c.start()
	_ = theirIn.Close()
	_ = theirOut.Close()
	fail(err)
	return c
}

// Expect waits for the next line that begins with prefix, and returns what follows it, without the
// space between. Other lines before it are passed over. The test fails if there is no such line within
// the timeout or the child ends.
func (c *Child) Expect(t TB, prefix string, timeout time.Duration) string {
	t.Helper()
	line, err := c.said.find(prefix, timeout)
	if err != nil {
		t.Fatalf("lab: %s did not say %q: %v", c.name, prefix, err)
	}
	return strings.TrimPrefix(strings.TrimPrefix(line, prefix), " ")
}

// Silent fails the test if the child says a line that begins with prefix within d, or ends. It waits
// that long, and passes over other lines.
func (c *Child) Silent(t TB, prefix string, d time.Duration) {
	t.Helper()
	line, err := c.said.find(prefix, d)
	if err == nil {
		t.Fatalf("lab: %s said %q, and should not have", c.name, line)
	}
	if errors.Is(err, errNoMoreLines) {
		t.Fatalf("lab: %s ended", c.name)
	}
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
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	for _, done := range []<-chan struct{}{r.done, c.said.ended} {
		select {
		case <-done:
		case <-timer.C:
			t.Fatalf("lab: %s has not ended within %v", c.name, timeout)
		}
	}
	return r.cmd.ProcessState.ExitCode()
}
