package compare

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The fault files that docs/compare.md shows can be used as they are.
func TestTheFaultFilesOfThePage(t *testing.T) {
	page, err := os.ReadFile("../docs/compare.md")
	require.NoError(t, err)
	files := regexp.MustCompile("(?s)```json\n(.*?)```").FindAllSubmatch(page, -1)
	require.Len(t, files, 3)
	for _, text := range files {
		file := filepath.Join(t.TempDir(), "faults.json")
		require.NoError(t, os.WriteFile(file, text[1], 0o644))
		faults, err := ReadFaults(file)
		require.NoError(t, err)
		for _, f := range faults {
			assert.NoError(t, f.check(), f.Name)
			assert.NotEmpty(t, f.Proof, f.Name)
			assert.NotEmpty(t, f.Heal, f.Name)
		}
	}
}
