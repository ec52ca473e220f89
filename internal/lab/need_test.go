package lab_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/internal/lab"
)

func TestNeedSkipsWhatIsNotInstalled(t *testing.T) {
	t.Setenv(lab.RequireEnv, "")
	r := record(t, func(t lab.TB) {
		lab.Need(t, "no-such-tool")
		t.Errorf("went on")
	})
	assert.True(t, r.skipped())
	assert.False(t, r.Failed())
	assert.Contains(t, r.said(), "no-such-tool is not installed")
	assert.Contains(t, r.said(), "LOCKER_NO_SUCH_TOOL")
}

func TestNeedFailsWhereNothingMayBeMissing(t *testing.T) {
	t.Setenv(lab.RequireEnv, "1")
	r := record(t, func(t lab.TB) { lab.Need(t, "no-such-tool") })
	assert.True(t, r.Failed())
	assert.False(t, r.skipped())
	assert.Contains(t, r.said(), "LOCKER_REQUIRE_SERVERS=1 forbids to skip")
}

func TestNeedTakesTheOverrideOrNothing(t *testing.T) {
	t.Setenv(lab.RequireEnv, "")
	path := filepath.Join(t.TempDir(), "mine")
	require.NoError(t, os.WriteFile(path, nil, 0o700))
	t.Setenv("LOCKER_REDIS_SERVER", path)
	assert.Equal(t, path, lab.Need(t, lab.ToolRedis))

	t.Setenv("LOCKER_REDIS_SERVER", path+"-not")
	r := record(t, func(t lab.TB) { lab.Need(t, lab.ToolRedis) })
	assert.True(t, r.Failed(), "an override that is wrong is not a missing server")
	assert.False(t, r.skipped())
	assert.Contains(t, r.said(), "LOCKER_REDIS_SERVER")
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
	if filepath.Base(filepath.Dir(built)) != "bin" ||
		filepath.Base(filepath.Dir(filepath.Dir(built))) != ".cache" {
		t.Skip("this repository has not built one: scripts/etcd")
	}
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "etcd"), nil, 0o700))
	t.Setenv("PATH", dir)
	assert.Equal(t, built, lab.Need(t, lab.ToolEtcd))
}

func TestToolEnv(t *testing.T) {
	assert.Equal(t, "LOCKER_REDIS_SERVER", lab.ToolEnv(lab.ToolRedis))
	assert.Equal(t, "LOCKER_ETCD", lab.ToolEnv(lab.ToolEtcd))
	assert.Equal(t, "LOCKER_ZOOKEEPER_JAR", lab.ToolEnv(lab.ToolZooJar))
}
