package docs_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/internal/pageprograms"
)

// What the page on backends says to copy and to write is all that the suite needs, in a module that cannot see
// what is internal here. It knows this module by one line alone: where it is.
func TestTheExampleBackendPassesTheSuiteWhereItIsCopiedTo(t *testing.T) {
	t.Parallel()
	root, err := filepath.Abs("..")
	require.NoError(t, err)
	dir := t.TempDir()
	for _, name := range []string{"go.sum", "conformance/example_test.go", "conformance/example_network_test.go"} {
		text, err := os.ReadFile(filepath.Join(root, name))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, filepath.Base(name)), text, 0o600))
	}
	blocks := blocksOf(t, "backend.md", "## Begin with the example\n", "\n## ")
	require.Len(t, blocks, 2)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "conformance_test.go"), []byte(blocks[0][1]), 0o600))
	require.Regexp(t, "^go mod init .*\ngo mod tidy\ngo test .*\n$", blocks[1][1])
	for _, args := range [][]string{
		{"mod", "init", "example.com/mine"},
		{"mod", "edit", "-replace=github.com/golockers/locker=" + root, "-require=github.com/golockers/locker@v0.0.0"},
		{"test", "-mod=mod", "-count=1", "-v", "-run=^TestConformance$"},
	} {
		cmd := exec.CommandContext(t.Context(), "go", args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GOFLAGS=", "GOWORK=off", "GOPROXY=off")
		said, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", said)
		if args[0] == "test" {
			assert.Contains(t, string(said), "--- PASS: TestConformance/exclusion")
			assert.Contains(t, string(said), "--- PASS: TestConformance/histories")
		}
	}
	assert.Len(t, pageprograms.Quotes(t, "backend.md"), 1)
}
