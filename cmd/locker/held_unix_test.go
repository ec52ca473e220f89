//go:build unix

package main_test

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestStatusAndSilenceOfAHeldLock(t *testing.T) {
	backend := []with{fileBackend(t)}
	holder := start(t, backend, locked(nil, "a", "listen")...)
	holder.expect("group")
	for _, c := range []struct {
		flags  []string
		status int
		silent bool
	}{
		{[]string{"--try"}, 75, false},
		{[]string{"--try", "-q"}, 75, true},
		{[]string{"--try", "-E", "0"}, 0, false},
		{[]string{"--wait", "10ms", "--quiet", "--conflict-exit-code", "7"}, 7, true},
	} {
		r := do(t, backend, append(append([]string{"run"}, c.flags...), "a", "--", "echo", "ran")...)
		assert.Equal(t, c.status, r.status, "%q", c.flags)
		assert.Empty(t, r.stdout, "%q", c.flags)
		assert.Equal(t, c.silent, r.stderr == "", "%q: %s", c.flags, r.stderr)
	}
	// Other errors are neither silent nor given that status.
	r := do(t, backend, "run", "-q", "-E", "7", "--try", "", "--", "true")
	assert.Equal(t, 64, r.status)
	assert.NotEmpty(t, r.stderr)
	assert.Equal(t, 64, do(t, backend, "run", "-E", "256", "a", "--", "true").status)
}

// It would wait for itself.
func TestNestedRunOfTheSameNameSaysSo(t *testing.T) {
	inner := `"` + binary + `" run a -- echo inner ran`
	for what, script := range map[string]string{
		"in the command":      inner,
		"in a nested command": `"` + binary + `" run b -- ` + inner,
	} {
		r := do(t, []with{fileBackend(t)}, "run", "a", "--", "sh", "-c", script)
		assert.Equal(t, 75, r.status, what)
		assert.Empty(t, r.stdout, what)
		assert.Contains(t, r.stderr, "nothing is reentrant", what)
	}
}

// A process that has left the command has its environment, and may well ask for the name.
func TestFormerlyNestedRunWaits(t *testing.T) {
	backend := fileBackend(t)
	r := do(t, []with{backend}, "run", "a", "--", "printenv", "LOCKER_OUTER")
	require.Equal(t, 0, r.status, r.stderr)
	outer := withEnv("LOCKER_OUTER=" + r.stdout)
	holder := start(t, []with{backend}, locked(nil, "a", "listen")...)
	holder.expect("group")
	next := start(t, []with{backend, outer}, "run", "a", "--", "echo", "ran")
	assert.Never(t, func() bool { return strings.Contains(next.said(), "reentrant") },
		300*time.Millisecond, 10*time.Millisecond)
	holder.signal(syscall.SIGTERM)
	next.expect("ran")
	assert.Equal(t, 0, next.wait())
}

func TestOutliveIsForFiles(t *testing.T) {
	r := do(t, []with{startService(t).direct()}, "run", "--outlive", "a", "--", "echo", "ran")
	assert.Equal(t, 64, r.status)
	assert.Empty(t, r.stdout)
	assert.Contains(t, r.stderr, "--outlive")
}
