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

// The program of the README can be pasted and run.
func TestProgramOfTheReadme(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	_, rest, begins := strings.Cut(string(readme), "```go\n")
	lines, _, ends := strings.Cut(rest, "```\n")
	require.True(t, begins && ends, "the README has no program")
	assert.Less(t, strings.Count(string(readme), "\n"), 151, "the README is read from top to bottom")

	program := filepath.Join(t.TempDir(), "main.go")
	require.NoError(t, os.WriteFile(program, []byte(lines), 0o600))
	out, err := exec.CommandContext(t.Context(), "go", "run", program).CombinedOutput()
	require.NoError(t, err, "%s", out)
	assert.Equal(t, "sent\n<nil>\n", string(out))
}

// The first command of the README works in a clone, with nothing installed.
func TestFirstCommandOfTheReadme(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	_, rest, begins := strings.Cut(string(readme), "## The command\n")
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
