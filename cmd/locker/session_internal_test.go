package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/golockers/locker"
	"github.com/golockers/locker/memory"
)

func TestLabelIsWithinItsLimits(t *testing.T) {
	for _, command := range []string{
		"backup", "/usr/bin/backup", "a\x1b[2Jb", "\xff", strings.Repeat("ü", 100), strings.Repeat("x", 200),
	} {
		l := label(command)
		assert.LessOrEqual(t, len(l), locker.MaxLabelLen)
		c := locker.New(memory.New(), &locker.Options{Label: l})
		_, err := c.TryLock(t.Context(), "a")
		assert.NoError(t, err, "the engine takes %q", l)
		assert.NoError(t, c.Close())
	}
	assert.Regexp(t, `^backup@.+\[\d+\]$`, label("/usr/bin/backup"))
}

// A renewal may be under way when the command has ended and all is closed.
func TestARenewalThatOurCloseEndsIsNoNews(t *testing.T) {
	s := &session{notes: make(notes, 2)}
	s.trace().Renewed(t.Context(), locker.Event{Name: "a", Err: locker.ErrClosed})
	assert.Empty(t, s.notes)
	s.trace().Renewed(t.Context(), locker.Event{Name: "a", Err: locker.ErrUnavailable})
	assert.Len(t, s.notes, 1)
}
