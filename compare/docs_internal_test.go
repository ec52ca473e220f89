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
		faults, err := readFaults(file)
		require.NoError(t, err)
		for _, f := range faults {
			assert.NoError(t, f.check(), f.Name)
			assert.NotEmpty(t, f.Proof, f.Name)
			assert.NotEmpty(t, f.Heal, f.Name)
		}
	}
}

// docs/peers.md is about the versions that make compare-peers runs.
func TestThePeersPageHasTheirVersions(t *testing.T) {
	page, err := os.ReadFile("../docs/peers.md")
	require.NoError(t, err)
	mod, err := os.ReadFile("peers/go.mod")
	require.NoError(t, err)
	for _, path := range []string{"bsm/redislock", "redis/rueidis", "go-redsync/redsync", "etcd/client",
		"go-zookeeper/zk"} {
		version := regexp.MustCompile(`(?m)^\t\S*` + path + `(?:/v\d)? (v\S+)$`).FindSubmatch(mod)
		require.NotNil(t, version, path)
		assert.Regexp(t,
			`(?m)^\|.*`+regexp.QuoteMeta(path)+`.*\| `+regexp.QuoteMeta(string(version[1]))+` \|`,
			string(page))
	}
}
