package docs_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/internal/lab"
)

// What the page on backends says to copy, to write and to type is all that the suite needs, in a module that cannot
// see what is internal here.
func TestProveTheExampleBackendPassesTheSuiteWhereItIsCopiedTo(t *testing.T) {
	lab.NeedProve(t)
	t.Parallel()
	dir, typed := typing(t)
	for _, name := range []string{"example_test.go", "example_network_test.go"} {
		text, err := os.ReadFile(filepath.Join("../conformance", name))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), text, 0o600))
	}
	blocks := blocksOf(t, "backend.md", "## Begin with the example\n", "\n## ")
	require.Len(t, blocks, 2)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "conformance_test.go"), []byte(blocks[0][1]), 0o600))
	said := typed(blocks[1][1])
	assert.Contains(t, said, "--- PASS: TestConformance/exclusion")
	assert.Contains(t, said, "--- PASS: TestConformance/histories")
}
