//go:build unix

package main_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/internal/lab"
)

// Where no lock can be had, the findings say why: that is when they are needed.
func TestCheckSaysAllWhereNoLockCanBeHad(t *testing.T) {
	master := lab.StartRedis(t)
	replica := lab.StartRedis(t, lab.ReplicaOf(master))
	// has just been started: the restart guard keeps it out
	redlock := "redlock://" + lab.StartRedis(t).Addr()
	for url, want := range map[string]string{"redis://" + replica.Addr(): "slave", redlock: "restart"} {
		r := do(t, nil, "check", url)
		assert.Equal(t, 2, r.status, "%s: %s%s", url, r.stdout, r.stderr)
		assert.Regexp(t, `(?m)^problem +lock, renew and unlock: `, r.stdout)
		assert.Contains(t, r.stdout, want)
		assert.Contains(t, r.stdout, "maxmemory-policy")
		assert.Empty(t, r.stderr)
	}
}

func TestCheckLeavesNotMoreThanOneName(t *testing.T) {
	dir := t.TempDir()
	for range 3 {
		r := do(t, nil, "check", "file://"+dir)
		assert.Equal(t, 0, r.status, r.stdout+r.stderr)
	}
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Len(t, left, 1)
}
