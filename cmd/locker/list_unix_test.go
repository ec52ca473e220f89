//go:build unix

package main_test

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestListAndBreak(t *testing.T) {
	backend := []with{startService(t).direct()}
	assert.Equal(t, result{}, do(t, backend, "list"))
	assert.Equal(t, result{0, `"b": free`, ""}, do(t, backend, "break", "--yes", "b"))

	for _, name := range []string{"a/2", "a/1", "b"} {
		start(t, backend, locked([]string{"--ttl", "20s"}, name, "listen")...).expect("group")
	}
	r := do(t, backend, "list", "a/")
	assert.Equal(t, 0, r.status, r.stderr)
	assert.Regexp(t, `\A"a/1": held by \S+@\S+, for \S+ unless renewed, token \d+\n"a/2": held .*\z`,
		r.stdout, "sorted, and nothing but the prefix")

	var names []string
	for _, one := range answers(t, backend, "list") {
		assert.True(t, one.Held)
		names = append(names, one.Name)
	}
	assert.Equal(t, []string{"a/1", "a/2", "b"}, names)

	r = do(t, backend, "break", "b")
	assert.Equal(t, 64, r.status, "nobody is there to be asked")
	assert.Contains(t, r.stderr, "--yes")
	r = do(t, backend, "break", "--yes", "b")
	assert.Equal(t, 0, r.status, r.stderr)
	assert.Regexp(t, `^broken, "b": held by .*, token \d+$`, r.stdout)
	assert.Equal(t, `"b": free`, do(t, backend, "inspect", "b").stdout)
}

// Of two machines with the same line for cron one runs the job, however short
// it is and however far their clocks are apart.
func TestMinHoldKeepsTheLockWhenTheJobIsOver(t *testing.T) {
	for name, backend := range map[string]with{"redis": startService(t).direct(), "file": fileBackend(t)} {
		t.Run(name, func(t *testing.T) {
			hourly := []string{"run", "--try", "-q", "--min-hold", "1h", "a", "--", "echo", "ran"}
			assert.Equal(t, result{0, "ran", ""}, do(t, []with{backend}, hourly...))
			assert.Equal(t, result{75, "", ""}, do(t, []with{backend}, hourly...))
			// Nor does it matter that the job's locker is killed.
			killed := start(t, []with{backend}, locked([]string{"--min-hold", "1h"}, "b", "listen")...)
			killed.expect("group")
			killed.signal(syscall.SIGKILL)
			killed.wait()
			assert.Equal(t, 75, do(t, []with{backend}, "run", "--try", "b", "--", "true").status)
			assert.Equal(t, 0, do(t, []with{backend}, "break", "--yes", "a").status)
			assert.Equal(t, 0, do(t, []with{backend}, hourly...).status,
				"an operator can let the next one in")
		})
	}
	r := do(t, []with{fileBackend(t)}, "run", "--min-hold", "2h", "--max-hold", "1h", "a", "--", "true")
	assert.Equal(t, 64, r.status)
	assert.Contains(t, r.stderr, "--min-hold")
}
