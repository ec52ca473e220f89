package main

import (
	"context"
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
	for says, fails := range map[string]func(ctx context.Context) error{
		"not done within 1s (see --timeout)": func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
		"unavailable":                        func(context.Context) error { return locker.ErrUnavailable },
	} {
		cmd := newLook(&cobra.Command{Use: "look", SilenceErrors: true, SilenceUsage: true},
			func(ctx context.Context, _ *locker.Client, _ []string) ([]look, error) {
				return []look{{State: locker.State{Name: "a"}}}, fails(ctx)
			}, lines)
		var out strings.Builder
		cmd.SetOut(&out)
		cmd.SetArgs([]string{"--backend", "file://" + t.TempDir(), "--timeout", "1s"})
		var e *exitError
		require.ErrorAs(t, cmd.Execute(), &e)
		assert.ErrorContains(t, e, says)
		assert.Equal(t, statusUnavailable, e.status)
		assert.Equal(t, "\"a\": free\n", out.String())
	}
}

// It also links all of the command into the test binary: go test would otherwise take a result from its cache
// although the command, which TestMain builds by itself, has changed.
func TestEveryCommandTeachesByExample(t *testing.T) {
	_, done := beGuard(nil)
	assert.False(t, done)
	root := newRoot()
	assert.NotEmpty(t, root.Example)
	for _, cmd := range root.Commands() {
		assert.NotEmpty(t, cmd.Short, cmd.Name())
		assert.NotEmpty(t, cmd.Long, cmd.Name())
		examples := strings.Count("\n"+cmd.Example, "\n  ") - strings.Count("\n"+cmd.Example, "\n    ")
		assert.GreaterOrEqual(t, examples, 3, cmd.Name())
		assert.Contains(t, cmd.Example, "locker "+cmd.Name(), cmd.Name())
		if _, crontab, ok := strings.Cut(cmd.Example, "in the crontab of each:\n"); ok {
			for line := range strings.Lines(crontab) {
				assert.Regexp(t, `^    ([A-Z_]+=\S+|[*\d]+( [*\d]+){4} locker run [^%]+)\n?$`, line)
			}
		}
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
