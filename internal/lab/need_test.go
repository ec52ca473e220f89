package lab_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/internal/lab"
)

func TestNeed(t *testing.T) {
	mine := filepath.Join(t.TempDir(), "mine")
	require.NoError(t, os.WriteFile(mine, nil, 0o700))
	for name, of := range map[string]struct {
		tool, require, override string
		skips, fails            bool
		says                    string
	}{
		"not there":            {"no-such-tool", "", "", true, false, "no-such-tool is not installed"},
		"it says how":          {"no-such-tool", "", "", true, false, "LOCKER_NO_SUCH_TOOL"},
		"nothing may miss":     {"no-such-tool", "1", "", false, true, "LOCKER_REQUIRE_SERVERS=1 forbids to skip"},
		"but what is extra":    {lab.ToolOldEtcd, "1", "", false, false, ""},
		"none is to be there":  {lab.ToolRedis, "", "-", true, false, "redis-server is not installed"},
		"another is to be":     {lab.ToolRedis, "1", mine, false, false, ""},
		"no skip if mistyped":  {lab.ToolRedis, "", mine + "-not", false, true, "LOCKER_REDIS_SERVER"},
		"with a dot in a name": {lab.ToolZooJar, "", "-", true, false, "LOCKER_ZOOKEEPER_JAR"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(lab.RequireEnv, of.require)
			t.Setenv(lab.ToolEnv(of.tool), of.override)
			path := ""
			r := record(t, func(t lab.TB) { path = lab.Need(t, of.tool) })
			if name != "but what is extra" { // which is there or not
				assert.Equal(t, of.skips, r.skipped(), r.said())
				assert.Equal(t, of.skips || of.fails, path == "")
			}
			assert.Equal(t, of.fails, r.Failed(), r.said())
			assert.Contains(t, r.said(), of.says)
		})
	}
}

func TestNeedLooksBesidesPath(t *testing.T) {
	path := lab.Need(t, lab.ToolRedis)
	if filepath.Dir(path) != "/usr/bin" {
		t.Skip("redis-server is not in /usr/bin")
	}
	t.Setenv("PATH", t.TempDir())
	assert.Equal(t, path, lab.Need(t, lab.ToolRedis))
}

// Another etcd in PATH is not the version that the tests are for.
func TestNeedPrefersWhatTheRepositoryBuildsToPath(t *testing.T) {
	built := lab.Need(t, lab.ToolEtcd)
	if filepath.Base(filepath.Dir(filepath.Dir(built))) != ".cache" {
		t.Skip("this repository has not built one: scripts/build etcd")
	}
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "etcd"), nil, 0o700))
	t.Setenv("PATH", dir)
	assert.Equal(t, built, lab.Need(t, lab.ToolEtcd))
}
