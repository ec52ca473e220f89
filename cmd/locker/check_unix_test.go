//go:build unix

package main_test

import (
	"os"
	"strings"
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

// Whoever checks each minute would fill a service with the names of the checks.
func TestCheckLeavesNothingBehind(t *testing.T) {
	dir := t.TempDir()
	redis, pg := lab.StartRedis(t, lab.WithConfig("appendonly", "yes")), lab.StartPostgres(t)
	node := lab.StartRedis(t, lab.WithConfig("appendonly", "yes"))
	for _, url := range []string{"file://" + dir, "redis://" + redis.Addr(),
		"redlock://" + node.Addr() + "?fencing=on&ttl=500ms&restart_guard=off", pg.URL(pg.Addr()),
		"file://" + dir + " redis://" + redis.Addr()} {
		r := do(t, nil, "check", url)
		assert.NotContains(t, r.stderr, "locker:", url)
		assert.Contains(t, r.stdout, "lock, renew and unlock: took", r.stderr)
		if strings.HasPrefix(url, "redis") {
			assert.Contains(t, r.stdout, "appendfsync of "+redis.Addr()+": everysec")
			assert.Equal(t, 1, r.status, r.stdout)
		}
	}
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Empty(t, left)
	assert.Equal(t, []any{"locker:1:tokens"}, redis.MustDo(t, "KEYS", "*"), "the one counter of the server")
	assert.Empty(t, node.MustDo(t, "KEYS", "*{*"))
	assert.Equal(t, "0", pg.Query(t, "SELECT count(*) FROM locker_locks WHERE name <> ''"))
}
