//go:build unix

package main_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestShared(t *testing.T) {
	backend := []with{startService(t).direct()}
	holding(t, backend, "--shared", "--ttl", "20s")
	holding(t, backend, "--shared", "--ttl", "20s")
	assert.Equal(t, 75, do(t, backend, "run", "--try", "a", "--", "true").status, "a writer")
	assert.Regexp(t, `^"a": held by 2 who share it: \S+@\S+, \S+@\S+, for .*, token \d+$`,
		do(t, backend, "list").stdout)
	state := answers(t, backend, "inspect", "a")[0]
	assert.True(t, state.Held)
	assert.Equal(t, 2, state.Sharers)
	assert.Len(t, state.Sharing, 2)

	token := do(t, backend, "run", "--shared", "a", "--", "sh", "-c", "echo $LOCKER_TOKEN").stdout
	assert.Contains(t, do(t, backend, "inspect", "a").stdout, "token "+token, "that of all who share it")

	r := do(t, backend, "break", "--yes", "a")
	assert.Equal(t, 0, r.status, r.stderr)
	assert.Contains(t, r.stdout, `broken, "a": held by 2 who share it`)
	assert.Equal(t, result{0, "alone", ""}, do(t, backend, "run", "--try", "a", "--", "echo", "alone"))

	r = do(t, backend, "run", "--shared", "--slots", "2", "a", "--", "true")
	assert.Equal(t, 64, r.status)
	assert.Contains(t, r.stderr, "not both")
	r = do(t, backend, "run", "--shared", "-b", "redlock://"+startService(t).Addr()+"?restart_guard=off", "a", "--", "true")
	assert.Equal(t, 64, r.status, r.stderr)
	assert.Contains(t, r.stderr, "redlock has no shared locks")
}
