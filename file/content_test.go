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
	for _, want := range []string{`"process":\d+,"label":"the \\"night\\" job","since":"\S+Z"`, ""} {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		assert.Regexp(t, `^locker 1: .*\ntoken \d+\n\{`+want+`\}\nsum [0-9a-f]{8} +\nname "a\\nname"\n$`, string(text))
		_ = lease.Unlock(t.Context())
	}
	assert.Equal(t, os.FileMode(0o600), modeOf(t, path))
}

func TestEveryNameAndLabelIsReadBack(t *testing.T) {
	b := newBackend(t, t.TempDir())
	names := []string{"n", "\x00\x01\n\r\"\\", strings.Repeat("\x7f", 640), strings.Repeat("\u2028", 213),
		strings.Repeat("本", 213), "sum 00000000", "\nsum ", "\n{"}
	labels := []string{"", "x", `"\"`, "100 %d", strings.Repeat("本", 42), strings.Repeat(`"`, 128),
		strings.Repeat("<", 128), "sum 00000000", `","raised":9`, strings.Repeat("\x01", 500)}
	for _, name := range names {
		var last uint64
		for _, label := range labels {
			g, err := b.Acquire(t.Context(), locker.Request{Name: name, Label: label})
			require.NoError(t, err, "%q %q", name, label)
			require.Greater(t, g.Token, last)
			last = g.Token
			st, err := b.Inspect(t.Context(), name)
			require.NoError(t, err)
			if len(label) <= locker.MaxLabelLen {
				require.Equal(t, label, st.Label)
			}
			require.Equal(t, last, st.Token)
			require.NoError(t, g.Hold.Release(t.Context()))
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

// A crash of the machine leaves nothing of a file that was never flushed, or a part of the first record. The token
// that is left of it counts.
func TestFirstRecordThatWasNotWrittenToItsEndIsReplaced(t *testing.T) {
	const ahead = 5e15 // microseconds: a century from now
	_, good := used(t, t.TempDir(), "n")
	good = withToken(t, good, ahead)
	size := len(good)
	zeros := make([]byte, size)
	at := bytes.Index(good, []byte("token "))
	for what, c := range map[string]struct {
		content []byte
		known   bool // the token was written
	}{
		"nothing":                       {nil, false},
		"zeros":                         {zeros, false},
		"one byte":                      {good[:1], false},
		"cut in the first line":         {good[:20], false},
		"cut in the token":              {good[:at+9], false},
		"cut in the token, then zeros":  {slices.Concat(good[:at+9], zeros[at+9:]), false},
		"cut behind the token":          {good[:bytes.Index(good, []byte("\n{"))+1], true},
		"cut behind it, then zeros":     {slices.Concat(good[:300], zeros[300:]), true},
		"without the second sector":     {good[:512], true},
		"zeros for the second sector":   {slices.Concat(good[:512], zeros[512:]), true},
		"cut in the second sector":      {good[:size-1], true},
		"zeros for the first sector":    {slices.Concat(zeros[:512], good[512:]), false},
		"zeros in both":                 {slices.Concat(good[:100], zeros[100:515], zeros[515:]), true},
		"nothing but the first newline": {zeros[:1], false},
		"all of it":                     {good, true}, // as if the last holder's clock had been a century ahead
	} {
		t.Run(what, func(t *testing.T) {
			dir := t.TempDir()
			require.NoError(t, os.WriteFile(filepath.Join(dir, "n.lock"), c.content, 0o600))
			client := newClient(t, dir, nil)
			began := uint64(time.Now().UnixMicro())
			st, err := client.Inspect(t.Context(), "n")
			require.NoError(t, err)
			assert.False(t, st.Held)
			for i := range uint64(2) {
				lease := mustLock(t, client, "n")
				got := token(t, lease)
				assert.GreaterOrEqual(t, got, began)
				if c.known {
					assert.EqualValues(t, uint64(ahead)+1+i, got)
				}
				require.NoError(t, lease.Unlock(t.Context()))
			}
			now, err := os.ReadFile(filepath.Join(dir, "n.lock"))
			require.NoError(t, err)
			assert.Len(t, now, size)
		})
	}
}

// withToken returns the content of a lock file with another token in it.
func withToken(t *testing.T, content []byte, token uint64) []byte {
	t.Helper()
	_, name, ok := strings.Cut(string(content[511:]), "\n")
	require.True(t, ok)
	head, _, ok := strings.Cut(string(content), "token ")
	require.True(t, ok)
	text := fmt.Sprintf("%stoken %d\n{}\n", head, token)
	text += fmt.Sprintf("sum %08x", crc32.ChecksumIEEE([]byte(text)))
	return []byte(text + strings.Repeat(" ", 511-len(text)) + "\n" + name)
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
		path, before := filepath.Join(dir, "n.lock"), []byte(nil)
		for range 2 { // a new file, and one that was used
			child := lab.StartChild(t, "limited", dir, "n", "file size", limit)
			assert.Contains(t, child.Expect(t, "error", patience), "file too large")
			content, err := os.ReadFile(path)
			require.NoError(t, err)
			assert.Equal(t, string(before), string(content), "the disk took %s bytes", limit)
			_, before = used(t, dir, "n")
		}
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

// What a crash leaves in the file is no lock, nor does what is in it say who has locked it that knows nothing of this
// package.
func TestInspectGoesByTheKernelsLock(t *testing.T) {
	dir := t.TempDir()
	c := newClient(t, dir, &locker.Options{Label: "the night job"})
	inspect := func() locker.State {
		t.Helper()
		return must(c.Inspect(t.Context(), "n"))
	}
	free := locker.State{Name: "n", Waiters: -1}
	assert.Equal(t, free, inspect())
	assert.Empty(t, must(os.ReadDir(dir)), "looking makes no file")
	child := lab.StartChild(t, "hold", dir, "n")
	child.Expect(t, "holding", patience)
	assert.True(t, inspect().Held)
	child.Kill()
	assert.Equal(t, free, inspect())

	require.NoError(t, mustLock(t, c, "n").Unlock(t.Context()))
	f := must(os.Open(lockFile(t, dir)))
	defer f.Close()
	require.NoError(t, syscall.Flock(int(f.Fd()), syscall.LOCK_EX))
	st := inspect()
	assert.Equal(t, locker.State{Name: "n", Held: true, Holder: "file 0", Waiters: -1}, st)
	_, err := c.TryLock(t.Context(), "n")
	assert.ErrorIs(t, err, locker.ErrHeld)
	assert.ErrorContains(t, c.Break(t.Context(), st), "does not say which it is")
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
