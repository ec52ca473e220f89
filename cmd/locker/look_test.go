package main_test

import (
	"encoding/json"
	"net/url"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
)

func TestBackendsListsEveryGuarantee(t *testing.T) {
	r := do(t, nil, "backends")
	require.Equal(t, 0, r.status, r.stderr)
	for _, want := range []string{"memory", "file", "single", "kernel", "one server", "rests on",
		"redis+sentinel://"} {
		assert.Contains(t, r.stdout, want)
	}
	for _, line := range strings.Split(r.stdout, "\n") {
		assert.LessOrEqual(t, utf8.RuneCountInString(strings.TrimRight(line, " ")), 80, line)
	}

	r = do(t, nil, "backends", "--json")
	require.Equal(t, 0, r.status, r.stderr)
	var all []map[string]any
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &all))
	require.NotEmpty(t, all)
	byName := map[string]map[string]any{}
	for _, b := range all {
		byName[b["backend"].(string)] = b
		assert.Len(t, b, reflect.TypeFor[locker.Guarantees]().NumField()+1,
			"every field of %v, and the URLs", b)
	}
	assert.Equal(t, "host", byName["file"]["scope"])
	assert.Equal(t, true, byName["file"]["survives_clock_jump"])
	assert.Equal(t, "network", byName["single"]["scope"])
	assert.Equal(t, float64(100), byName["single"]["min_ttl_ms"])

	r = do(t, nil, "backends", "--markdown")
	require.Equal(t, 0, r.status, r.stderr)
	table, _, _ := strings.Cut(r.stdout, "\n\n")
	for line := range strings.Lines(table) {
		assert.Equal(t, len(all)+2, strings.Count(line, "|"), line)
	}
}

// The holders are this very command, started again.
func TestCompare(t *testing.T) {
	out := filepath.Join(t.TempDir(), "run")
	r := do(t, nil, "compare", "--for", "0s", "--only", "healthy", "--out", out, "--require", "exclusion",
		(&url.URL{Scheme: "file", Path: t.TempDir()}).String())
	require.Equal(t, 0, r.status, r.stderr)
	assert.Contains(t, r.stdout, "two at once: healthy")
	assert.FileExists(t, filepath.Join(out, "report.html"))

	r = do(t, nil, "help", "compare")
	assert.Contains(t, r.stdout, "--recheck directory")
	r = do(t, nil, "compare", "--nosuch")
	assert.Equal(t, result{64, "", "locker: unknown flag: --nosuch (see locker compare --help)\n"}, r)
	assert.Contains(t, do(t, nil, "__complete", "compare", "z").stdout, "zookeeper\n")
	assert.Contains(t, do(t, nil, "__complete", "compare", "--only", "healthy,").stdout, "healthy,fail-over\n")
}

func TestVersionHelpAndCompletion(t *testing.T) {
	for _, args := range [][]string{{"version"}, {"--version"}} {
		r := do(t, nil, args...)
		assert.Equal(t, 0, r.status)
		assert.Regexp(t, `^locker version \S+ \(`+runtime.Version()+` `+runtime.GOOS, r.stdout)
	}
	r := do(t, nil, "help", "run")
	assert.Equal(t, 0, r.status)
	assert.Contains(t, r.stdout, "locker run --try -q", "help teaches by example")
	for _, command := range []string{"", "run", "inspect", "list", "wait", "break", "check", "compare",
		"backends", "version"} {
		r := do(t, nil, "help", command)
		assert.Equal(t, 0, r.status, command)
		for _, line := range strings.Split(strings.ReplaceAll(r.stdout, "\t", "    "), "\n") {
			assert.LessOrEqual(t, len(line), 80, "%s: %s", command, line)
		}
	}
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		r = do(t, nil, "completion", shell)
		assert.Equal(t, 0, r.status, shell)
		assert.NotEmpty(t, r.stdout, shell)
	}
	r = do(t, nil, "__complete", "run", "--backend", "")
	assert.Contains(t, r.stdout, "redis://")
}
