package lab_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/internal/lab"
)

// orphanEnv makes TestOrphanage start what it is to leave behind.
const orphanEnv = "LOCKER_TEST_ORPHANAGE"

// TestOrphanage is no test of its own: TestNothingOutlivesAKilledTestBinary runs it, and kills it.
func TestOrphanage(t *testing.T) {
	if os.Getenv(orphanEnv) == "" {
		t.Skip("run by TestNothingOutlivesAKilledTestBinary")
	}
	r := lab.StartRedis(t)
	c := lab.StartChild(t, "echo")
	c.Expect(t, "ready", soon)
	// A child that nothing but the kernel can end: it does not get to see that its parent is gone.
	c.Pause()
	fmt.Printf("orphans %s %d\n", r.Addr(), c.Pid())
	select {}
}

func TestNothingOutlivesAKilledTestBinary(t *testing.T) {
	lab.Need(t, lab.ToolRedis)
	binary, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(context.Background(), binary, "-test.run=^TestOrphanage$", "-test.v")
	cmd.Env = append(os.Environ(), orphanEnv+"=1", "TMPDIR="+t.TempDir())
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	var addr string
	var child int
	text := make([]byte, 4096)
	for n := 0; addr == ""; {
		m, err := out.Read(text[n:])
		n += m
		if _, line, found := strings.Cut(string(text[:n]), "orphans "); found && strings.Contains(line, "\n") {
			_, err := fmt.Sscan(line, &addr, &child)
			require.NoError(t, err)
			break
		}
		require.NoError(t, err, "%s", text[:n])
	}
	c, err := connect(addr)
	require.NoError(t, err, "the server is up")
	_ = c.Close()
	require.True(t, alive(t, child))

	require.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait()
	eventually(t, "the server ends", func() bool {
		c, err := connect(addr)
		if err == nil {
			_ = c.Close()
		}
		return err != nil
	})
	eventually(t, "the child ends", func() bool { return !alive(t, child) })
}

// Where the kernel does not end a child, the end of its standard input does.
func TestChildEndsWhenItsTestIsGone(t *testing.T) {
	binary, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(context.Background(), binary)
	cmd.Env = append(os.Environ(), `LOCKER_TEST_ROLE={"Role":"wait"}`)
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	timeout := time.AfterFunc(soon, func() { _ = cmd.Process.Kill() })
	defer timeout.Stop()
	_ = stdin.Close()
	assert.EqualError(t, cmd.Wait(), "exit status 3")
}

func TestPauseReturnsWhenTheProcessStandsStill(t *testing.T) {
	c := lab.StartChild(t, "spin")
	c.Expect(t, "ready", soon)
	for range 50 {
		c.Pause()
		require.True(t, lab.Suspended(c.Pid()))
		c.Resume()
	}
}

// alive reports whether a process exists and is not just waiting to be reaped.
func alive(t *testing.T, pid int) bool {
	t.Helper()
	state, err := exec.CommandContext(context.Background(), "ps", "-o", "state=", "-p",
		strconv.Itoa(pid)).Output()
	return err == nil && !strings.HasPrefix(strings.TrimSpace(string(state)), "Z")
}
