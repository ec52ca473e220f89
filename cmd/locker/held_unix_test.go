//go:build unix

package main_test

import (
	"net/url"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestHeldByAnother(t *testing.T) {
	backend := []with{fileBackend(t)}
	holder := holding(t, backend)
	for _, c := range []struct {
		flags  string
		status int
		silent bool
	}{
		{"--try", 75, false},
		{"--try -q", 75, true},
		{"--try -E 0", 0, false},
		{"--wait 0s", 75, false},
		{"--wait 10ms --quiet --conflict-exit-code 7", 7, true},
	} {
		r := do(t, backend, slices.Concat([]string{"run"}, strings.Fields(c.flags), []string{"a", "--", "echo", "ran"})...)
		assert.Equal(t, c.status, r.status, c.flags)
		assert.Empty(t, r.stdout, c.flags)
		assert.Equal(t, !c.silent, strings.Contains(r.stderr, "held by another"), "%q: %s", c.flags, r.stderr)
	}
	// Other errors are neither silent nor given that status.
	r := do(t, backend, "run", "-q", "-E", "7", "--try", "", "--", "true")
	assert.Equal(t, 64, r.status)
	assert.NotEmpty(t, r.stderr)

	began := time.Now()
	assert.Equal(t, 75, do(t, backend, "run", "--wait", "300ms", "a", "--", "echo", "ran").status)
	assert.GreaterOrEqual(t, time.Since(began), 300*time.Millisecond)
	assert.Less(t, time.Since(began), patience/2)
	assert.Equal(t, 0, do(t, backend, "run", "--try", "b", "--", "true").status, "another name is another lock")

	waiter := start(t, backend, "run", "--wait", patience.String(), "a", "--", "echo", "ran")
	holder.signal(os.Interrupt)
	holder.expect("got SIGINT")
	assert.True(t, waiter.running())
	holder.end()
	waiter.expect("ran")
	assert.Equal(t, 0, waiter.wait())
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
	for what, change := range map[string]func(url.Values){
		"another label": func(outer url.Values) { outer["a"][0] += "0" },
		"another token": func(outer url.Values) { outer["a"][1] += "0" }, // locker is PID 1 of each container
	} {
		t.Run(what, func(t *testing.T) {
			backend := fileBackend(t)
			holder := start(t, []with{backend}, "run", "a", "--", "sh", "-c",
				"printenv LOCKER_OUTER; exec sleep 60")
			outer, err := url.ParseQuery(holder.expect(""))
			require.NoError(t, err)
			change(outer)
			inside := withEnv("LOCKER_OUTER=" + outer.Encode())
			next := start(t, []with{backend, inside}, "run", "a", "--", "echo", "ran")
			assert.Never(t, func() bool { return strings.Contains(next.said(), "reentrant") },
				300*time.Millisecond, 10*time.Millisecond)
			holder.signal(syscall.SIGTERM)
			next.expect("ran")
			assert.Equal(t, 0, next.wait())
		})
	}
}

func TestOutliveIsForFiles(t *testing.T) {
	r := do(t, []with{startService(t).direct()}, "run", "--outlive", "a", "--", "echo", "ran")
	assert.Equal(t, 64, r.status)
	assert.Empty(t, r.stdout)
	assert.Contains(t, r.stderr, "--outlive")
}
