//go:build linux || darwin

package file_test

import (
	"bytes"
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
	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/internal/locktest"
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
	for _, name := range []string{"n", "\x00\x01\n\r\"\\", strings.Repeat("\x7f", 640), "\nsum ", "\n{"} {
		for _, label := range []string{"", `"\"`, "100 %d", strings.Repeat("<", 128), `","raised":9`,
			strings.Repeat("\x01", 500)} {
			g := must(locktest.Ask(t.Context(), b, driver.Request{Name: name, Label: label}))
			st := must(b.Inspect(t.Context(), name))
			if len(label) <= driver.MaxLabelLen {
				require.Equal(t, label, st.Label)
			}
			require.Equal(t, g.Token, st.Token)
			require.NoError(t, g.Hold.Release(t.Context(), 0))
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
		"half zeros":         zeroed,
		"cut":                good[:512],
		"zeros at its end":   slices.Concat(good[:512], make([]byte, len(good)-512)),
		"something after it": append(bytes.Clone(good), "x"...),
		"another name":       other,
		"another release":    bytes.Replace(good, []byte("locker 1"), []byte("locker 2"), 1),
		"a lot after it":     append(bytes.Clone(good), bytes.Repeat([]byte(" "), 1<<20)...),
	} {
		t.Run(what, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "n.lock")
			require.NoError(t, os.WriteFile(path, content, 0o600))
			c := newClient(t, dir, nil)
			for range 2 { // the second time shows that the first left no lock
				_, err := c.TryLock(t.Context(), "n")
				require.Error(t, err)
				assert.NotErrorIs(t, err, driver.ErrHeld)
				assert.NotErrorIs(t, err, driver.ErrUnavailable)
				assert.Contains(t, err.Error(), path)
				assert.NotContains(t, err.Error(), "\n")
			}
			now, err := os.ReadFile(path)
			require.NoError(t, err)
			assert.True(t, bytes.Equal(content, now), "it was written to")
		})
	}
}

// A crash of the machine leaves nothing of a file that was never flushed: tokens rise all the same.
func TestEmptyFileIsAsANewOne(t *testing.T) {
	for _, content := range [][]byte{nil, make([]byte, 1), make([]byte, 521)} {
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, "n.lock"), content, 0o600))
		c, began := newClient(t, dir, nil), uint64(time.Now().UnixMicro())
		assert.False(t, must(c.Inspect(t.Context(), "n")).Held)
		for range 2 {
			lease := mustLock(t, c, "n")
			assert.GreaterOrEqual(t, token(t, lease), began)
			began = token(t, lease) + 1
			require.NoError(t, lease.Unlock(t.Context()))
		}
	}
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
			assert.ErrorContains(t, err, "n.lock")
			_, err = c.Lock(t.Context(), "n")
			assert.ErrorContains(t, err, "n.lock")
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
	inspect := func() driver.State {
		t.Helper()
		return must(c.Inspect(t.Context(), "n"))
	}
	free := driver.State{Name: "n", Waiters: -1}
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
	assert.Equal(t, driver.State{Name: "n", Held: true, Holder: "file 0", Waiters: -1}, st)
	_, err := c.TryLock(t.Context(), "n")
	assert.ErrorIs(t, err, driver.ErrHeld)
	assert.ErrorContains(t, c.Break(t.Context(), st), "does not identify itself")
	require.NoError(t, syscall.Flock(int(f.Fd()), syscall.LOCK_UN))
	mustLock(t, c, "n")
}
