package file_test

import (
	"encoding/hex"
	"math/rand/v2"
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

func TestNamesThatFileSystemsConfuseDoNotMeet(t *testing.T) {
	seen := map[string]string{}
	for _, name := range []string{
		"a", "A", "^a", "%41", "%5ea", "a.lock", "a.", "a ", " a", "a%", "a%2", "a/", "/a", "a//b", "a/b",
		"a/./b", "b/../a", "a\\b", "a\x00", "a\n",
		"é", "e\u0301", "É", "ß", "SS", "ss", "ſ", "s", "K", "\u212a", "k", "ı", "i", "I", "İ", "ﬁ", "fi",
		"Ａ", "%c3%a9",
		".", "..", "...", "%2e", "~", "-", "con", "CON", "nul.txt", "a:b", "a%3ab",
	} {
		key := strings.ToLower(file.FileName(name))
		other, clash := seen[key]
		assert.False(t, clash, "%q and %q meet in %s", name, other, key)
		seen[key] = name
		checkFileName(t, name)
	}
}

// checkFileName checks what makes a file name good on every file system.
func checkFileName(t *testing.T, name string) {
	t.Helper()
	got := file.FileName(name)
	require.LessOrEqual(t, len(got), 143)
	require.True(t, strings.HasSuffix(got, ".lock"))
	require.NotEqual(t, byte('.'), got[0])
	for _, c := range []byte(got) {
		require.False(t, c <= ' ' || c >= 0x7f || c == '/' || c == '\\' || 'A' <= c && c <= 'Z',
			"%q in %s", c, got)
	}
	if !strings.Contains(got, "~") {
		require.Equal(t, name, decodeFileName(t, got))
	}
}

// decodeFileName is the way back: where there is one, no two names can meet.
func decodeFileName(t *testing.T, s string) string {
	t.Helper()
	s = strings.TrimSuffix(s, ".lock")
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '^':
			i++
			b.WriteByte(s[i] - 'a' + 'A')
		case '%':
			c, err := hex.DecodeString(s[i+1 : i+3])
			require.NoError(t, err)
			b.Write(c)
			i += 2
		default:
			b.WriteByte(s[i])
		}
	}
	return b.String()
}

func TestFileNamesAreInjective(t *testing.T) {
	pieces := []string{"a", "A", "z", "Z", "0", "%", "^", "~", ".", "..", "/", "\\", "\x00", "\n", " ",
		"é", "e\u0301", "本", "\U0001F512", "2e", "5e", ".lock", "%2e", "^a"}
	seen := map[string]string{}
	random := rand.New(rand.NewPCG(1, 2))
	for range 10_000 {
		var b strings.Builder
		for range 1 + random.IntN(4)*random.IntN(40) {
			b.WriteString(pieces[random.IntN(len(pieces))])
		}
		name := b.String()
		checkFileName(t, name)
		key := file.FileName(name)
		if other, ok := seen[key]; ok {
			require.Equal(t, other, name, key)
		}
		seen[key] = name
	}
}

func FuzzFileName(f *testing.F) {
	f.Add("a", "A")
	f.Add("../é", strings.Repeat("x", 640))
	f.Fuzz(func(t *testing.T, a, b string) {
		if a == "" || b == "" {
			return
		}
		checkFileName(t, a)
		require.Equal(t, a == b, file.FileName(a) == file.FileName(b))
	})
}
