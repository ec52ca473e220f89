// Package pageprograms runs the programs that a page of documentation shows, and
// compares what they say with what stands after them.
package pageprograms

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

// Program is a block of Go on a page, and the output that stands after it.
type Program struct{ Name, Text, Output string }

var block = regexp.MustCompile("(?s)<!-- program: (\\w+) -->\n```go\n(.*?)```\n```text\n(.*?)```")

// Read returns the programs of the page in a file.
func Read(t *testing.T, file string) (programs []Program) {
	t.Helper()
	page, err := os.ReadFile(file)
	require.NoError(t, err)
	for _, m := range block.FindAllStringSubmatch(string(page), -1) {
		programs = append(programs, Program{m[1], m[2], m[3]})
	}
	return programs
}

// RunTwice runs the program, with the address that is real in the place of the
// one that is documented, as a reader does who has pasted it into a file and
// starts it again: what outlives the first run must not stop the second.
func (p Program) RunTwice(t *testing.T, documented, real string) {
	t.Helper()
	require.Contains(t, p.Text, documented)
	file := filepath.Join(t.TempDir(), "main.go")
	require.NoError(t, os.WriteFile(file, []byte(strings.ReplaceAll(p.Text, documented, real)), 0o600))
	for _, run := range []string{"first run", "second run"} {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, "go", "run", file)
		var stderr strings.Builder
		cmd.Stderr = &stderr
		said, err := cmd.Output()
		require.NoError(t, err, "%s: %s", run, &stderr)
		assert.Equal(t, p.Output, string(said), "%s: %s", run, &stderr)
	}
}
