// Package docs_test runs the programs of the documentation.
package docs_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/internal/testserver"
)

// program is a block of Go and the output that stands after it.
var program = regexp.MustCompile("(?s)<!-- program: (\\w+) -->\n```go\n(.*?)```\n```text\n(.*?)```")

// A reader can paste each program of fencing.md, and it says what the page says, each time. Those for SQL need drivers; internal/sqltest runs them.
func TestTheProgramsOfFencing(t *testing.T) {
	page, err := os.ReadFile("fencing.md")
	require.NoError(t, err)
	server := map[string]func(t *testing.T) (documented, real string){
		"memory": nil, "file": nil, "http": nil,
		"redis": func(t *testing.T) (string, string) { return "localhost:6379", testserver.StartRedis(t).Addr() },
		"etcd": func(t *testing.T) (string, string) {
			return "localhost:2379", testserver.StartEtcd(t, 1).Addrs()[0]
		},
		"zookeeper": func(t *testing.T) (string, string) { return "localhost:2181", testserver.StartZooKeeper(t).Addr() },
	}
	for _, p := range program.FindAllStringSubmatch(string(page), -1) {
		name, text, want := p[1], p[2], p[3]
		if strings.Contains(text, "sqlguard") {
			continue
		}
		start, known := server[name]
		require.True(t, known, name)
		delete(server, name)
		t.Run(name, func(t *testing.T) {
			if start != nil {
				documented, addr := start(t)
				require.Contains(t, text, documented)
				text = strings.ReplaceAll(text, documented, addr)
			}
			file := filepath.Join(t.TempDir(), "main.go")
			require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
			// Twice: a reader who starts it again finds the marks of the first run.
			for _, run := range []string{"first run", "second run"} {
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
				defer cancel()
				cmd := exec.CommandContext(ctx, "go", "run", file)
				var stderr strings.Builder
				cmd.Stderr = &stderr
				said, err := cmd.Output()
				require.NoError(t, err, "%s: %s", run, &stderr)
				assert.Equal(t, want, string(said), "%s: %s", run, &stderr)
			}
		})
	}
	assert.Empty(t, server, "programs that the page does not have any more")
}
