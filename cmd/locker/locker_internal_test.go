package main

import (
	"context"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/golockers/locker"
	"github.com/golockers/locker/backends"
	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A renewal may be under way when the command has ended and all is closed.
func TestARenewalThatOurCloseEndsIsNoNews(t *testing.T) {
	s := &session{notes: make(notes, 2)}
	s.trace().Renewed(t.Context(), locker.Event{Name: "a", Err: locker.ErrClosed})
	assert.Empty(t, s.notes)
	s.trace().Renewed(t.Context(), locker.Event{Name: "a", Err: locker.ErrUnavailable})
	assert.Len(t, s.notes, 1)
}

// A question that is not answered in time is no lock that another holds, and what was found until then is shown.
func TestAQuestionThatIsNotAnsweredInTime(t *testing.T) {
	found := []locker.State{{Name: "a"}, {Name: "b"}}
	for name, test := range map[string]struct {
		timeout string
		fails   func(ctx context.Context) error
		status  int
		says    string
	}{
		"too slow": {"50ms", func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, statusUnavailable,
			"not done within 50ms (see --timeout)"},
		"breaks off": {"1h", func(context.Context) error { return locker.ErrUnavailable }, statusUnavailable, "unavailable"},
		"not at all": {"0s", nil, statusUsage, "more than zero"},
		"no time":    {"10", nil, statusUsage, "missing unit"},
	} {
		root, look := newRoot(), newLook(&cobra.Command{Use: "look"},
			func(ctx context.Context, _ *locker.Client, _ []string) ([]locker.State, error) {
				return found, test.fails(ctx)
			})
		root.AddCommand(look)
		var out strings.Builder
		root.SetOut(&out)
		root.SetErr(io.Discard)
		root.SetArgs([]string{"look", "--backend", "file://" + t.TempDir(), "--timeout", test.timeout})
		err := root.Execute()
		require.ErrorContains(t, err, test.says, name)
		if test.status == statusUsage { // of the flag: main gives it this status
			assert.NotErrorAs(t, err, new(*exitError), name)
			continue
		}
		assert.Equal(t, "\"a\": free\n\"b\": free\n", out.String(), name)
		var e *exitError
		require.ErrorAs(t, err, &e, name)
		assert.Equal(t, test.status, e.status, name)
	}
}

// It also links all of the command into the test binary: go test would
// otherwise take a result from its cache although the command, which TestMain
// builds by itself, has changed.
func TestEveryCommandTeachesByExample(t *testing.T) {
	_, done := beGuard(nil)
	assert.False(t, done)
	root := newRoot()
	assert.NotEmpty(t, root.Example)
	for _, cmd := range root.Commands() {
		assert.NotEmpty(t, cmd.Short, cmd.Name())
		assert.NotEmpty(t, cmd.Long, cmd.Name())
		assert.Contains(t, cmd.Example, "locker "+cmd.Name(), cmd.Name())
	}
}

// scheme is how a URL begins in the README's table.
var scheme = regexp.MustCompile("`([a-z+]+)://")

// The README's table and the list of this command have every URL that there is.
func TestReadmeListsEveryURL(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	_, rest, begins := strings.Cut(string(readme), "| URL | service |\n")
	table, _, ends := strings.Cut(rest, "\n\n")
	require.True(t, begins && ends, "the README has no table of URLs")
	listed := map[string]bool{}
	for _, m := range scheme.FindAllStringSubmatch(table, -1) {
		listed[m[1]] = true
	}
	all := slices.Sorted(maps.Keys(backends.Openers))
	assert.Equal(t, all, slices.Sorted(maps.Keys(listed)), "the table")

	named := map[string]bool{}
	for _, p := range promises() {
		for _, m := range regexp.MustCompile(`([a-z+]+)://`).FindAllStringSubmatch(p.urls, -1) {
			named[m[1]] = true
		}
	}
	assert.Equal(t, all, slices.Sorted(maps.Keys(named)), "locker backends")
}
