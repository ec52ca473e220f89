package main_test

import (
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
)

// The page on services says of guarantees what the code declares.
func TestBackends(t *testing.T) {
	r := do(t, nil, "backends")
	require.Equal(t, 0, r.status, r.stderr)
	table, _, _ := strings.Cut(r.stdout, "\n\n")
	fields := reflect.TypeFor[locker.Guarantees]().NumField() - len([]string{"Backend", "RestsOn"})
	assert.Equal(t, 2+fields, strings.Count(table, "\n")+1, "a line for every field")
	page, err := os.ReadFile("../../docs/services.md")
	require.NoError(t, err)
	_, rest, begins := strings.Cut(string(page), "<!-- locker backends -->\n")
	shown, _, ends := strings.Cut(rest, "<!-- end -->")
	require.True(t, begins && ends, "the page has no place for the table")
	assert.Equal(t, strings.TrimSpace(r.stdout), strings.TrimSpace(shown), "paste the output of: locker backends")
}

// The holders are this very command, started again.
func TestCompare(t *testing.T) {
	t.Parallel()
	out := filepath.Join(t.TempDir(), "run")
	// With a TTL of its own choice it takes longer on a busy machine, twice, than anybody waits.
	r := do(t, nil, "compare", "--for", "0s", "--ttl", "1s", "--only", "healthy", "--out", out, "--require", "exclusion",
		(&url.URL{Scheme: "file", Path: t.TempDir()}).String())
	require.Equal(t, 0, r.status, r.stderr)
	assert.Contains(t, r.stdout, "exclusion: healthy")
	assert.FileExists(t, filepath.Join(out, "report.html"))

	r = do(t, nil, "help", "compare")
	assert.Contains(t, r.stdout, "--heal NAME=COMMAND")
	r = do(t, nil, "compare", "--nosuch")
	assert.Equal(t, result{64, "", "locker: unknown flag: --nosuch (see locker compare --help)\n"}, r)
	r = do(t, nil, "compare", "--fault", "nosuch=true", "redis://127.0.0.1:1")
	assert.Equal(t, 64, r.status, r.stderr)
}

func TestVersionAndHelp(t *testing.T) {
	r := do(t, nil, "--version")
	assert.Equal(t, 0, r.status)
	assert.Regexp(t, `^locker version \S+ \(`+runtime.Version()+` `+runtime.GOOS, r.stdout)
	for _, command := range []string{"", "run", "inspect", "list", "break", "check", "compare", "backends"} {
		r := do(t, nil, "help", command)
		assert.Equal(t, 0, r.status, command)
		for _, line := range strings.Split(strings.ReplaceAll(r.stdout, "\t", "    "), "\n") {
			assert.LessOrEqual(t, len(line), 80, "%s: %s", command, line)
		}
	}
}
