//go:build linux

package compare

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/golockers/locker/compare/internal/history"
	"github.com/golockers/locker/internal/lab"
)

// watched is a program that is watched as a server is.
type watched struct{ *lab.Process }

func (watched) Restart(lab.TB) {}
func (watched) Addr() string   { return "" }

// Of two programs that share a processor and would each take the whole of it, both are seen to wait; of one
// that sleeps there is next to nothing to see.
func TestServersThatWaitForAProcessor(t *testing.T) {
	t.Parallel()
	stdin, keep, err := os.Pipe()
	require.NoError(t, err)
	defer stdin.Close()
	defer keep.Close()
	start := func(script string) server {
		return watched{lab.StartProcess(t, "sh", func() (*exec.Cmd, error) {
			cmd := exec.CommandContext(context.Background(), "sh", "-c", script)
			cmd.Stdin = stdin
			return cmd, nil
		})}
	}
	all := []server{start("while :; do :; done"), start("while :; do :; done"), start("echo sleeps; read x")}
	var here, one unix.CPUSet
	require.NoError(t, unix.SchedGetaffinity(0, &here))
	for cpu := 0; one.Count() == 0; cpu++ {
		if here.IsSet(cpu) {
			one.Set(cpu)
		}
	}
	for _, s := range all[:2] {
		require.NoError(t, unix.SchedSetaffinity(s.Pid(), &one))
	}
	require.Eventually(t, func() bool { return all[2].(watched).Log() != "" }, time.Minute, time.Millisecond)

	dir := t.TempDir()
	j, err := history.Create(filepath.Join(dir, "parent.jsonl"))
	require.NoError(t, err)
	waits := func(s server) (sum time.Duration) {
		for e, err := range history.Read(dir) {
			assert.NoError(t, err)
			assert.Equal(t, history.Starved, e.Kind)
			if e.Process == fmt.Sprint(s.Pid()) {
				assert.Equal(t, "redis", e.Service)
				sum += time.Duration(e.Value)
			}
		}
		return sum
	}
	stop := watchServers(j, "redis", all)
	assert.Eventually(t, func() bool { return waits(all[0]) > time.Second && waits(all[1]) > time.Second },
		time.Minute, look)
	stop()
	require.NoError(t, j.Close())
	assert.Less(t, waits(all[2]), 250*time.Millisecond)
}
