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
	// Each service lists its own: who has both is seen by the label.
	for _, dir := range []string{old, young} {
		r := do(t, both, "run", "job", "--", binary, "list", "--backend", "file://"+dir)
		require.Equal(t, 0, r.status, r.stderr)
		assert.Regexp(t, `(?m)^"job": held by .* \[file file\], token \d+$`, r.stdout)
	}
	for _, asks := range [][]string{{"list"}, {"break", "--yes", "job"}} {
		r := do(t, both, asks...)
		assert.Equal(t, 69, r.status)
		assert.Contains(t, r.stderr, "backend file+file cannot")
		assert.Contains(t, r.stderr, "ask each of the two services by its own URL")
	}
	r := do(t, both, "check")
	require.Equal(t, 0, r.status, r.stderr)
	assert.Regexp(t, `(?m)^ok +lock, renew and unlock`, r.stdout)

	r = do(t, urls("file://"+old), "run", "job", "--", binary, "inspect", "--backend", "file://"+old+" file://"+young,
		"job")
	require.Equal(t, 0, r.status, r.stderr)
	assert.Contains(t, r.stdout, `"job": held by `)

	r = do(t, urls("file:///a file:///b file:///c"), "list")
	assert.Equal(t, 64, r.status)
	assert.Contains(t, r.stderr, "it has 3 parts")
}
