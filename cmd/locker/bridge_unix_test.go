//go:build unix

package main_test

import (
	"os/exec"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// urls sets the variable that names the service.
func urls(text string) []with {
	return []with{func(c *exec.Cmd) { c.Env = append(c.Env, "LOCKER_BACKEND="+text) }}
}

// Two URLs in one variable, as in the middle of a move.
func TestTwoServices(t *testing.T) {
	old, young := t.TempDir(), t.TempDir()
	both := urls("file://" + old + "\n file://" + young)
	r := do(t, both, "run", "job", "--", binary, "list")
	require.Equal(t, 0, r.status, r.stderr)
	assert.Regexp(t, `(?m)^"job": held by .* on both, token \d+$`, r.stdout)

	one := urls("file://" + old)
	r = do(t, one, "run", "job", "--", binary, "check", "file://"+old+" file://"+young)
	require.Equal(t, 0, r.status, r.stderr)
	assert.Regexp(t, `(?m)^info +names held on file://`+old+` only: 1: "job" by `, r.stdout)
	assert.Regexp(t, `(?m)^ok +names held on file://`+young+` only: none$`, r.stdout)

	r = do(t, one, "run", "job", "--", binary, "inspect", "--backend", "file://"+old+" file://"+young, "job")
	require.Equal(t, 0, r.status, r.stderr)
	assert.Contains(t, r.stdout, "on file://"+old+" only")

	r = do(t, urls("file:///a file:///b file:///c"), "list")
	assert.Equal(t, 64, r.status)
	assert.Contains(t, r.stderr, "it has 3 parts")
}
