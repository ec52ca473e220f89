//go:build unix

package main_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestShared(t *testing.T) {
	backend := []with{startService(t).direct()}
	one := start(t, backend, locked([]string{"--shared", "--ttl", "20s"}, "a", "listen")...)
	one.expect("group")
	two := start(t, backend, locked([]string{"--shared", "--ttl", "20s"}, "a", "listen")...)
	two.expect("group")
	assert.Equal(t, 75, do(t, backend, "run", "--try", "a", "--", "true").status, "a writer")
	assert.Regexp(t, `^"a": held by 2 who share it: \S+@\S+, \S+@\S+, for .*, token \d+$`,
		do(t, backend, "list").stdout)
	var state struct {
		Held    bool
		Sharers int
		Sharing []string
	}
	require.NoError(t, json.Unmarshal([]byte(do(t, backend, "inspect", "--json", "a").stdout), &state))
	assert.True(t, state.Held)
	assert.Equal(t, 2, state.Sharers)
	assert.NotEmpty(t, state.Sharing)

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
