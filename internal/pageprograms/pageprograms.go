// Package pageprograms runs the programs of examples, and sees to it that what a page
// of documentation shows of them is what they are.
package pageprograms

import (
	"context"
	"encoding/json"
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

// Build compiles the program in a folder of examples, with addresses that are real in
// the place of those that are documented, and returns the binary.
func Build(t *testing.T, examples, name string, documentedAndReal ...string) string {
	t.Helper()
	main, err := filepath.Abs(filepath.Join(examples, name, "main.go"))
	require.NoError(t, err)
	text, err := os.ReadFile(main)
	require.NoError(t, err)
	for i := 0; i < len(documentedAndReal); i += 2 {
		require.Contains(t, string(text), documentedAndReal[i])
	}
	dir := t.TempDir()
	copied := filepath.Join(dir, "main.go")
	require.NoError(t,
		os.WriteFile(copied, []byte(strings.NewReplacer(documentedAndReal...).Replace(string(text))), 0o600))
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {main: copied}})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "overlay.json"), overlay, 0o600))
	binary := filepath.Join(dir, "program")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-overlay", filepath.Join(dir, "overlay.json"),
		"-o", binary, "./"+name)
	cmd.Dir = examples
	said, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", said)
	return binary
}

// RunTwice runs the program as a reader does who starts it again: what outlives the
// first run must not stop the second. It has to print output each time.
func RunTwice(t *testing.T, binary, output string) {
	t.Helper()
	for _, run := range []string{"first run", "second run"} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, binary)
		cmd.Dir = filepath.Dir(binary)
		var stderr strings.Builder
		cmd.Stderr = &stderr
		said, err := cmd.Output()
		require.NoError(t, err, "%s: %s", run, &stderr)
		assert.Equal(t, output, string(said), "%s: %s", run, &stderr)
	}
}

// Story is what the programs of examples print that tell the same story.
const Story = "the second has read: paid\nthe first is refused: true\nthe state is: paid and sent\n"

var quote = regexp.MustCompile("(?s)<!-- from: (\\S+) -->\n```\\w*\n(.*?)```")

// Quotes sees to it that what a page quotes stands so in the file that it names,
// whatever the indentation. It returns how often each file is quoted.
func Quotes(t *testing.T, page string) map[string]int {
	t.Helper()
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	quoted := map[string]int{}
	for _, m := range quote.FindAllStringSubmatch(string(text), -1) {
		source, err := os.ReadFile(filepath.Join(filepath.Dir(page), m[1]))
		require.NoError(t, err)
		assert.Contains(t, unindented(string(source)), unindented(m[2]), m[1])
		quoted[m[1]]++
	}
	return quoted
}

func unindented(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = strings.TrimSpace(line)
	}
	return strings.Join(lines, "\n")
}
