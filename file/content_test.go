//go:build linux || darwin

package file_test

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/internal/lab"
)

// used returns the path and content of a lock file that was used for name.
func used(t *testing.T, dir, name string) (path string, content []byte) {
	t.Helper()
	lease := mustLock(t, newClient(t, dir, &locker.Options{Label: `the "night" job`}), name)
	require.NoError(t, lease.Unlock(t.Context()))
	path = lockFile(t, dir)
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	return path, content
}

func TestLockFileIsForPeople(t *testing.T) {
	dir := t.TempDir()
	lease := mustLock(t, newClient(t, dir, &locker.Options{Label: `the "night" job`}), "a\nname")
	path := lockFile(t, dir)
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Regexp(t, `^locker 1: .*\ntoken \d+\nheld by process \d+ since \S+Z as "the \\"night\\" job"\n`+
		`sum [0-9a-f]{8} +\nname "a\\nname"\n$`, string(text))
	require.NoError(t, lease.Unlock(t.Context()))
	text, err = os.ReadFile(path)
	require.NoError(t, err)
	assert.Regexp(t, `^locker 1: .*\ntoken \d+\nfree\nsum [0-9a-f]{8} +\nname "a\\nname"\n$`, string(text))
	info, err := os.Stat(path)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode())
}

func TestEveryNameAndLabelIsReadBack(t *testing.T) {
	for _, name := range []string{
		"n", "\x00\x01\n\r\"\\", strings.Repeat("\x7f", 640), strings.Repeat("\u2028", 213),
		strings.Repeat("本", 213), "sum 00000000", "\nsum ",
	} {
		for _, label := range []string{"", "x", `"\"`, "100 %d", strings.Repeat("本", 42),
			strings.Repeat(`"`, 128), "sum 00000000", "as \"x\"", strings.Repeat("\x01", 500)} {
			b := newBackend(t, t.TempDir())
			var last uint64
			for range 2 {
				g, err := b.Acquire(t.Context(), locker.Request{Name: name, Label: label})
				require.NoError(t, err, "%q %q", name, label)
				require.Greater(t, g.Token, last)
				last = g.Token
				st, err := b.Inspect(t.Context(), name)
				require.NoError(t, err)
				if len(label) <= 128 {
					require.Equal(t, label, st.Label)
				}
				require.Equal(t, last, st.Token)
				require.NoError(t, g.Hold.Release(t.Context()))
			}
		}
	}
}

func TestFileWithAnythingElseInItIsLeftAlone(t *testing.T) {
	_, good := used(t, t.TempDir(), "n")
	_, other := used(t, t.TempDir(), "other")
	digit := bytes.Index(good, []byte("token ")) + len("token ")
	wrongDigit := bytes.Clone(good)
	wrongDigit[digit] = '0' + (wrongDigit[digit]-'0'+9)%10
	zeroed := bytes.Clone(good)
	clear(zeroed[:100])
	for what, content := range map[string][]byte{
		"garbage":            []byte("4711\n"),
		"a lower token":      wrongDigit,
		"a lower token, cut": wrongDigit[:512],
		"cut, then another": slices.Concat(good[:digit+3], make([]byte, 512-digit-3),
			[]byte("name \"m\"\n")),
		"no tail, more zeros": append(good[:512:512], make([]byte, 512)...),
		"half zeros":          zeroed,
		"something after it":  append(bytes.Clone(good), "x"...),
		"another name":        other,
		"another release":     bytes.Replace(good, []byte("locker 1"), []byte("locker 2"), 1),
		"a lot":               bytes.Repeat([]byte("x"), 1<<20),
		"a lot after it":      append(bytes.Clone(good), bytes.Repeat([]byte(" "), 1<<20)...),
		"a lot of zeros, and": append(make([]byte, 1<<20), 'x'),
	} {
		t.Run(what, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "n.lock")
			require.NoError(t, os.WriteFile(path, content, 0o600))
			c := newClient(t, dir, nil)
			for range 2 { // the second time shows that the first left no lock
				_, err := c.TryLock(t.Context(), "n")
				require.Error(t, err)
				assert.NotErrorIs(t, err, locker.ErrHeld)
				assert.NotErrorIs(t, err, locker.ErrUnavailable)
				assert.Contains(t, err.Error(), path)
				assert.NotContains(t, err.Error(), "\n")
			}
			now, err := os.ReadFile(path)
			require.NoError(t, err)
			assert.True(t, bytes.Equal(content, now), "it was written to")
		})
	}
}

// That is what the crash of a machine leaves of a file that was never flushed.
func TestFileWithoutContentIsANewOne(t *testing.T) {
	for what, content := range map[string][]byte{"empty": nil, "zeros": make([]byte, 521)} {
		t.Run(what, func(t *testing.T) {
			dir := t.TempDir()
			path, _ := used(t, dir, "n")
			c := newClient(t, dir, nil)
			lease := mustLock(t, c, "n")
			before := token(t, lease)
			require.NoError(t, lease.Unlock(t.Context()))
			require.NoError(t, os.WriteFile(path, content, 0o600))
			assert.Greater(t, token(t, mustLock(t, c, "n")), before)
		})
	}
}

// A crash of the machine may have left a part of the first record. All that is left of
// it counts, so that the token does not fall.
func TestFirstRecordThatWasNotWrittenToItsEndIsReplaced(t *testing.T) {
	const ahead = 5e15 // microseconds: a century from now
	good := withToken(t, second(used(t, t.TempDir(), "n")), ahead)
	size := len(good)
	zeros := make([]byte, size)
	token := bytes.Index(good, []byte("token "))
	for what, c := range map[string]struct {
		content []byte
		known   bool // the token was written
	}{
		"one byte":                      {good[:1], false},
		"cut in the first line":         {good[:20], false},
		"cut in the token":              {good[:token+9], false},
		"cut in the token, then zeros":  {slices.Concat(good[:token+9], zeros[token+9:]), false},
		"cut behind the token":          {good[:bytes.Index(good, []byte("\nfree"))+1], true},
		"cut behind it, then zeros":     {slices.Concat(good[:300], zeros[300:]), true},
		"without the second sector":     {good[:512], true},
		"zeros for the second sector":   {slices.Concat(good[:512], zeros[512:]), true},
		"cut in the second sector":      {good[:size-1], true},
		"zeros for the first sector":    {slices.Concat(zeros[:512], good[512:]), false},
		"zeros in both":                 {slices.Concat(good[:100], zeros[100:515], zeros[515:]), true},
		"nothing but the first newline": {zeros[:1], false},
	} {
		t.Run(what, func(t *testing.T) {
			dir := t.TempDir()
			require.NoError(t, os.WriteFile(filepath.Join(dir, "n.lock"), c.content, 0o600))
			client := newClient(t, dir, nil)
			began := uint64(time.Now().UnixMicro())
			st, err := client.Inspect(t.Context(), "n")
			require.NoError(t, err)
			assert.False(t, st.Held)
			lease := mustLock(t, client, "n")
			got, _ := lease.Token()
			assert.GreaterOrEqual(t, got, began)
			if c.known {
				assert.EqualValues(t, uint64(ahead)+1, got)
			}
			require.NoError(t, lease.Unlock(t.Context()))
			now, err := os.ReadFile(filepath.Join(dir, "n.lock"))
			require.NoError(t, err)
			assert.Len(t, now, size)
		})
	}
}

func second(_ string, b []byte) []byte { return b }

// withToken returns the content of a lock file with another token in it.
func withToken(t *testing.T, content []byte, token uint64) []byte {
	t.Helper()
	text, rest, ok := strings.Cut(string(content), "\nsum ")
	require.True(t, ok)
	_, name, ok := strings.Cut(rest, "\n")
	require.True(t, ok)
	head, _, ok := strings.Cut(text, "token ")
	require.True(t, ok)
	text = fmt.Sprintf("%stoken %d\nfree\n", head, token)
	text += fmt.Sprintf("sum %08x", crc32.ChecksumIEEE([]byte(text)))
	return []byte(text + strings.Repeat(" ", 511-len(text)) + "\n" + name)
}

func TestTokensRiseAlsoWhenTheClockIsBehind(t *testing.T) {
	dir := t.TempDir()
	path, content := used(t, dir, "n")
	// As if the last holder's clock had been a century ahead.
	const ahead = 5e15
	require.NoError(t, os.WriteFile(path, withToken(t, content, ahead), 0o600))
	c := newClient(t, dir, nil)
	for i := range uint64(3) {
		lease := mustLock(t, c, "n")
		assert.Equal(t, ahead+1+i, token(t, lease))
		require.NoError(t, lease.Unlock(t.Context()))
	}
}

func TestTokenThatCannotRiseIsAnError(t *testing.T) {
	dir := t.TempDir()
	path, content := used(t, dir, "n")
	require.NoError(t, os.WriteFile(path, withToken(t, content, 1<<64-1), 0o600))
	_, err := newClient(t, dir, nil).TryLock(t.Context(), "n")
	assert.ErrorContains(t, err, "cannot rise")
}

func TestFullDiskLeavesTheFileAsItWas(t *testing.T) {
	for _, limit := range []string{"0", "1", "100", "511", "513"} {
		dir := t.TempDir()
		child := lab.StartChild(t, "limited", dir, "n", "file size", limit)
		assert.Contains(t, child.Expect(t, "error", patience), "file too large")
		content, err := os.ReadFile(lockFile(t, dir))
		require.NoError(t, err)
		assert.Empty(t, content, "the disk took %s bytes", limit)

		path, before := used(t, dir, "n")
		child = lab.StartChild(t, "limited", dir, "n", "file size", limit)
		assert.Contains(t, child.Expect(t, "error", patience), "file too large")
		content, err = os.ReadFile(path)
		require.NoError(t, err)
		assert.Equal(t, string(before), string(content), "the disk took %s bytes", limit)
		used(t, dir, "n")
	}
}

// Too many open files say nothing of the holder, and may pass.
func TestExhaustionIsUnavailable(t *testing.T) {
	child := lab.StartChild(t, "limited", t.TempDir(), "n", "open files", "3")
	assert.Regexp(t, "too many open files; unavailable true$", child.Expect(t, "error", patience))
}

func TestWhatIsNoFileIsAnError(t *testing.T) {
	target := filepath.Join(t.TempDir(), "target")
	require.NoError(t, os.WriteFile(target, nil, 0o600))
	for what, make := range map[string]func(path string) error{
		"directory": func(path string) error { return os.Mkdir(path, 0o700) },
		"link":      func(path string) error { return os.Symlink(target, path) },
		"dead link": func(path string) error { return os.Symlink("nowhere", path) },
		"pipe":      func(path string) error { return syscall.Mkfifo(path, 0o600) },
	} {
		t.Run(what, func(t *testing.T) {
			dir := t.TempDir()
			require.NoError(t, make(filepath.Join(dir, "n.lock")))
			c := newClient(t, dir, nil)
			_, err := c.TryLock(t.Context(), "n")
			assert.ErrorContains(t, err, "is no file")
			_, err = c.Lock(t.Context(), "n")
			assert.ErrorContains(t, err, "is no file")
			_, err = c.Inspect(t.Context(), "n")
			assert.Error(t, err)
		})
	}
}

func TestInspectSaysWhoHolds(t *testing.T) {
	dir := t.TempDir()
	c := newClient(t, dir, &locker.Options{Label: "the night job"})
	free := locker.State{Name: "n", Waiters: -1}
	inspect := func() locker.State {
		t.Helper()
		st, err := c.Inspect(t.Context(), "n")
		require.NoError(t, err)
		return st
	}
	assert.Equal(t, free, inspect())
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Empty(t, entries, "looking makes no file")

	lease := mustLock(t, c, "n")
	assert.Equal(t, locker.State{Name: "n", Held: true, Holder: fmt.Sprint("file ", token(t, lease)),
		Label: "the night job", Token: token(t, lease), Waiters: -1}, inspect())
	require.NoError(t, lease.Unlock(t.Context()))
	assert.Equal(t, free, inspect())

	child := lab.StartChild(t, "hold", dir, "n")
	child.Expect(t, "holding", patience)
	assert.True(t, inspect().Held)
	child.Kill()
	assert.Equal(t, free, inspect(), "what a crash leaves in the file is no lock")

	// A program that knows nothing of this package.
	require.NoError(t, mustLock(t, c, "n").Unlock(t.Context()))
	f, err := os.Open(lockFile(t, dir))
	require.NoError(t, err)
	defer f.Close()
	require.NoError(t, syscall.Flock(int(f.Fd()), syscall.LOCK_EX))
	assert.Equal(t, locker.State{Name: "n", Held: true, Holder: "file 0", Waiters: -1}, inspect(),
		"the label and token of an earlier holder are not its own")
	_, err = c.TryLock(t.Context(), "n")
	assert.ErrorIs(t, err, locker.ErrHeld)
	require.NoError(t, syscall.Flock(int(f.Fd()), syscall.LOCK_UN))
	mustLock(t, c, "n")
}

func TestHolderWhoUnlockedByHandDoesNotEraseTheNext(t *testing.T) {
	dir := t.TempDir()
	first := mustLock(t, newClient(t, dir, nil), "n")
	var f *os.File
	require.True(t, first.As(&f))
	require.NoError(t, syscall.Flock(int(f.Fd()), syscall.LOCK_UN))
	c := newClient(t, dir, &locker.Options{Label: "next"})
	next := mustLock(t, c, "n")
	_ = first.Unlock(t.Context())
	st, err := c.Inspect(t.Context(), "n")
	require.NoError(t, err)
	assert.Equal(t, "next", st.Label)
	assert.Equal(t, token(t, next), st.Token)
}
