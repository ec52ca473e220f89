//go:build unix

package sqltest_test

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
)

// program is a block of Go and the output that stands after it.
var program = regexp.MustCompile("(?s)<!-- program: (\\w+) -->\n```go\n(.*?)```\n```text\n(.*?)```")

// A reader can paste each program for a database of docs/fencing.md, and it says what the page says, each time.
func TestTheProgramsOfFencing(t *testing.T) {
	page, err := os.ReadFile("../../docs/fencing.md")
	require.NoError(t, err)
	databases := map[string]func(t *testing.T) (documented, real string){
		"sqlite": func(t *testing.T) (string, string) { return "orders.db", filepath.Join(t.TempDir(), "orders.db") },
		"postgres": func(t *testing.T) (string, string) {
			s := startPostgres(t)
			return "postgres://postgres:secret@localhost:5432/postgres", s.dsn(s.addr, password)
		},
		"mysql": func(t *testing.T) (string, string) {
			s := startMariaDB(t)
			return "root:secret@tcp(localhost:3306)/test", s.dsn(s.addr, password)
		},
	}
	for _, p := range program.FindAllStringSubmatch(string(page), -1) {
		name, text, want := p[1], p[2], p[3]
		start, ours := databases[name]
		if !ours {
			continue
		}
		delete(databases, name)
		t.Run(name, func(t *testing.T) {
			documented, real := start(t)
			require.Contains(t, text, documented)
			file := filepath.Join(t.TempDir(), "main.go")
			require.NoError(t, os.WriteFile(file, []byte(strings.ReplaceAll(text, documented, real)), 0o600))
			// Twice: the marks outlive the first run, and so have its tokens to.
			for _, run := range []string{"first run", "second run"} {
				ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
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
	assert.Empty(t, databases, "programs that the page does not have any more")
}
