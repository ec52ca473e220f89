package file_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/file"
)

func TestFileNamesAreReadable(t *testing.T) {
	for name, want := range map[string]string{
		"report":                 "report.lock",
		"backup:db-1@eu.west":    "backup:db-1@eu.west.lock",
		"Orders/42":              "^orders%2f42.lock",
		"a b":                    "a%20b.lock",
		".":                      "%2e.lock",
		"..":                     "%2e..lock",
		"../x":                   "%2e.%2fx.lock",
		".hidden":                "%2ehidden.lock",
		"x.":                     "x..lock",
		"\x00":                   "%00.lock",
		"é":                      "%c3%a9.lock",
		"100%~^":                 "100%25%7e%5e.lock",
		strings.Repeat("a", 138): strings.Repeat("a", 138) + ".lock",
	} {
		assert.Equal(t, want, file.FileName(name))
	}
	long := file.FileName(strings.Repeat("a", 139))
	assert.Len(t, long, 143)
	assert.Regexp(t, `^a{73}~[0-9a-f]{64}\.lock$`, long)
}

// No two names meet, even on a file system that ignores case or normalizes Unicode.
func FuzzFileName(f *testing.F) {
	names := []string{
		"a", "A", "^a", "%41", "%5ea", "a.lock", "a.", "a ", "a%2", "a/", "a//b", "a/./b", "b/../a", "a\\b", "a\x00",
		"é", "e\u0301", "É", "ß", "SS", "ss", "ſ", "K", "\u212a", "k", "ı", "İ", "ﬁ", "%c3%a9", "\U0001F512",
		".", "..", "%2e", "~", "-", "con", "CON", "nul.txt", "a:b", "a%3ab",
		strings.Repeat("x", 640), strings.Repeat("x", 639) + "X", strings.Repeat("x", 640) + "~",
	}
	for _, a := range names {
		for _, b := range names {
			f.Add(a, b)
		}
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		if a == "" || b == "" {
			return
		}
		got := file.FileName(a)
		require.Equal(t, a == b, got == strings.ToLower(file.FileName(b)))
		require.LessOrEqual(t, len(got), 143)
		require.Regexp(t, `^[!#-\-0-@\[\]-~][!-.0-@\[\]-~]*\.lock$`, got) // ASCII, not hidden, no capitals, slashes, backslashes
	})
}
