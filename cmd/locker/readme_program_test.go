package main_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The ten lines of the README are ten, and do what is said of them.
func TestTenLinesOfTheReadme(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	_, rest, begins := strings.Cut(string(readme), "## Ten lines\n\n```go\n")
	lines, _, ends := strings.Cut(rest, "```\n")
	require.True(t, begins && ends, "the README has no ten lines")
	assert.Equal(t, 10, strings.Count(lines, "\n"))

	program := filepath.Join(t.TempDir(), "main.go")
	require.NoError(t, os.WriteFile(program, []byte(`package main

import (
	"context"
	"fmt"

	"github.com/golockers/locker"
	"github.com/golockers/locker/backends"
)

func main() { fmt.Println(bill(context.Background(), "memory://")) }

func send(ctx context.Context) error { fmt.Println("sent"); return ctx.Err() }

`+lines), 0o600))
	out, err := exec.CommandContext(t.Context(), "go", "run", program).CombinedOutput()
	require.NoError(t, err, "%s", out)
	assert.Equal(t, "sent\n<nil>\n", string(out))
}

// The first command of the README works in a clone, with nothing installed.
func TestFirstCommandOfTheReadme(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	_, rest, begins := strings.Cut(string(readme), "## Two commands\n")
	_, rest, block := strings.Cut(rest, "```sh\n")
	line, rest, ends := strings.Cut(rest, "\n")
	require.True(t, begins && block && ends, "the README has no commands")
	assert.True(t, strings.HasPrefix(rest, "make test\n"), "the second command")

	cmd := exec.CommandContext(t.Context(), "sh", "-c", strings.Replace(line, "sleep 5", "true", 1))
	cmd.Dir, cmd.Env = "../..", append(environ(), "XDG_STATE_HOME="+t.TempDir())
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	assert.Equal(t, "only one of us at a time\n", string(out))
}
