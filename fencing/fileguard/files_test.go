//go:build linux || darwin || freebsd

package fileguard_test

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/fencing"
	"github.com/golockers/locker/fencing/fileguard"
	"github.com/golockers/locker/internal/lab"
)

func TestDamagedSidecarIsNeverPermission(t *testing.T) {
	good := fileguard.Record(5, 0, "", 0)
	pending := fileguard.Record(5, 8, "replacing", 1)
	wrongDigit := bytes.Replace(good, []byte("mark 5"), []byte("mark 4"), 1)
	require.NotEqual(t, good, wrongDigit)
	half := bytes.Clone(pending)
	copy(half, good[:100])
	for what, content := range map[string][]byte{
		"garbage":            []byte("4711\n"),
		"a newline":          []byte("\n"),
		"zeros":              make([]byte, len(good)),
		"cut":                good[:100],
		"cut at the end":     good[:len(good)-1],
		"another digit":      wrongDigit,
		"something after it": append(bytes.Clone(good), 'x'),
		"a lot":              bytes.Repeat([]byte("x"), 1<<20),
		"half of each":       half,
		"another release":    bytes.Replace(good, []byte("fencing 1"), []byte("fencing 2"), 1),
		"an unknown change":  fileguard.Record(5, 8, "inventing", 1),
	} {
		t.Run(what, func(t *testing.T) {
			g, path := newGuard(t)
			mustWrite(t, g, 5, "five")
			side, _ := g.Names()
			require.NoError(t, os.WriteFile(side, content, 0o600))
			before := list(t, filepath.Dir(path))
			for range 2 { // the second time shows that the first left no lock
				err := g.WriteFile(t.Context(), 1<<63, []byte("x"), 0o600)
				require.ErrorContains(t, err, side)
				assert.NotErrorIs(t, err, fencing.ErrStale)
				assert.NotContains(t, err.Error(), "\n")
				assert.ErrorContains(t, g.Remove(t.Context(), 1<<63), side)
				_, err = g.Mark(t.Context())
				assert.ErrorContains(t, err, side)
				_, _, err = g.ReadFile(t.Context())
				assert.ErrorContains(t, err, side)
			}
			assert.Equal(t, before, list(t, filepath.Dir(path)))
			require.NoError(t, g.Forget(t.Context()), "somebody has looked")
			mustWrite(t, g, 1, "one")
		})
	}
}

func TestSidecarIsForPeople(t *testing.T) {
	g, _ := newGuard(t)
	mustWrite(t, g, 41, "")
	side, _ := g.Names()
	text, err := os.ReadFile(side)
	require.NoError(t, err)
	assert.Regexp(t, `^fencing 1: the mark of the file beside it; do not edit, do not delete\nmark 41\nsum [0-9a-f]{8} +\n$`, string(text))
	assert.Len(t, text, 512)
}

func TestWhatIsNoFileIsRefused(t *testing.T) {
	for what, build := range map[string]func(t *testing.T, path string) error{
		"a symbolic link":          func(_ *testing.T, path string) error { return os.Symlink("target", path) },
		"a link to nowhere":        func(_ *testing.T, path string) error { return os.Symlink("nowhere", path) },
		"a directory":              func(_ *testing.T, path string) error { return os.Mkdir(path, 0o700) },
		"a named pipe":             func(_ *testing.T, path string) error { return syscall.Mkfifo(path, 0o600) },
		"a link in the sidecar's":  func(_ *testing.T, path string) error { return os.Symlink("target", side(path)) },
		"a directory in its place": func(_ *testing.T, path string) error { return os.Mkdir(side(path), 0o700) },
		"a pipe in its place":      func(_ *testing.T, path string) error { return syscall.Mkfifo(side(path), 0o600) },
	} {
		t.Run(what, func(t *testing.T) {
			g, path := newGuard(t)
			target := filepath.Join(filepath.Dir(path), "target")
			require.NoError(t, os.WriteFile(target, []byte("as it was"), 0o600))
			require.NoError(t, build(t, path))
			assert.ErrorContains(t, g.WriteFile(t.Context(), 1, []byte("x"), 0o600), path)
			assert.ErrorContains(t, g.Remove(t.Context(), 1), path)
			text, err := os.ReadFile(target)
			require.NoError(t, err)
			assert.Equal(t, "as it was", string(text))
		})
	}
}

func side(path string) string {
	return filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".fence")
}

func TestSymbolicLinksAmongDirectoriesAreFollowed(t *testing.T) {
	g, path := newGuard(t)
	link := filepath.Join(t.TempDir(), "link")
	require.NoError(t, os.Symlink(filepath.Dir(path), link))
	mustWrite(t, g, 5, "five")
	linked := filepath.Join(link, "f")
	assertStale(t, guardOf(t, linked).WriteFile(t.Context(), 4, nil, 0o600), linked, 4, 5)
}

func TestPermissionsAreThoseOfTheFile(t *testing.T) {
	umask := syscall.Umask(0o022)
	defer syscall.Umask(umask)
	g, path := newGuard(t)
	mode := func() fs.FileMode {
		info, err := os.Stat(path)
		require.NoError(t, err)
		return info.Mode()
	}
	require.NoError(t, g.WriteFile(t.Context(), 1, nil, 0o666))
	assert.Equal(t, fs.FileMode(0o644), mode(), "perm, before umask")
	require.NoError(t, os.Chmod(path, 0o662))
	require.NoError(t, g.WriteFile(t.Context(), 1, nil, 0o600))
	assert.Equal(t, fs.FileMode(0o662), mode(), "those that it had")
	require.NoError(t, os.Chmod(path, 0o400))
	require.NoError(t, g.WriteFile(t.Context(), 1, nil, 0o600))
	assert.Equal(t, fs.FileMode(0o400), mode())
	info, err := os.Stat(side(path))
	require.NoError(t, err)
	assert.Equal(t, fs.FileMode(0o600), info.Mode())
}

func TestHardLinkKeepsTheOldContent(t *testing.T) {
	g, path := newGuard(t)
	mustWrite(t, g, 1, "one")
	require.NoError(t, os.Link(path, path+".link"))
	mustWrite(t, g, 2, "two")
	text, err := os.ReadFile(path + ".link")
	require.NoError(t, err)
	assert.Equal(t, "one", string(text))
	require.NoError(t, os.Remove(path))
	require.NoError(t, os.Link(path+".link", path))
	require.NoError(t, g.Remove(t.Context(), 3))
	assertIs(t, g, "", 3)
}

const nobody, friends = "65534", "54321"

// as lets another user act, and returns its error as text.
func as(t *testing.T, path, what, token, group string) string {
	t.Helper()
	return lab.StartChild(t, "user", path, what, token, nobody, group).Expect(t, "done", patience)
}

// sharedGuard returns a guard of a file in a directory that a group writes to.
func sharedGuard(t *testing.T) (*fileguard.Guard, string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can be several users")
	}
	// Not t.TempDir(), whose parents are closed to others.
	dir, err := os.MkdirTemp("", "fileguard")
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, os.RemoveAll(dir)) })
	require.NoError(t, os.Chown(dir, 0, 54321))
	require.NoError(t, os.Chmod(dir, os.ModeSetgid|0o770))
	path := filepath.Join(dir, "f")
	return guardOf(t, path), path
}

func TestUsersOfOneGroupGuardOneFile(t *testing.T) {
	g, path := sharedGuard(t)
	assert.Equal(t, "<nil>", as(t, path, "write", "1", friends), "the first to come")
	require.NoError(t, os.Chmod(path, 0o640))
	assertIs(t, g, "1", 1)
	mustWrite(t, g, 2, "2")
	got := list(t, filepath.Dir(path))
	assert.Equal(t, [4]any{uint32(65534), uint32(54321), fs.FileMode(0o640), "2"}, [4]any{got[1].uid, got[1].gid, got[1].mode, got[1].content},
		"root keeps owner, group and permissions")
	assert.Equal(t, "<nil>", as(t, path, "write", "3", friends))
	assert.Equal(t, "<nil>", as(t, path, "remove", "4", friends))
	mustWrite(t, g, 5, "5")
	assert.Equal(t, "<nil>", as(t, path, "write", "6", friends))
	got = list(t, filepath.Dir(path))
	assert.Equal(t, [2]any{uint32(65534), uint32(54321)}, [2]any{got[1].uid, got[1].gid}, "who wrote it has it")
	assert.Contains(t, as(t, path, "write", "5", friends), "stale")
	assert.Contains(t, as(t, path, "write", "7", nobody), "permission denied", "not of the group")
	assertIs(t, g, "6", 6)
}

func TestGroupThatCannotBeKeptIsAnError(t *testing.T) {
	g, path := sharedGuard(t)
	mustWrite(t, g, 1, "1")
	require.NoError(t, os.Chown(path, 0, 0))
	require.NoError(t, os.Chmod(path, 0o660))
	before := list(t, filepath.Dir(path))
	assert.Contains(t, as(t, path, "write", "2", friends), "cannot be given the group 0")
	assert.Equal(t, before, list(t, filepath.Dir(path)))
	assertIs(t, g, "1", 1)
}

// A rename that the system refuses, after all was noted: another's file in a
// directory like /tmp.
func TestRefusedRenameMovesNothing(t *testing.T) {
	g, path := sharedGuard(t)
	mustWrite(t, g, 1, "1")
	require.NoError(t, os.Chown(path, 0, 54321))
	require.NoError(t, os.Chmod(filepath.Dir(path), os.ModeSticky|0o777))
	g = guardOf(t, path)
	mustWrite(t, g, 1, "1") // opens the sidecar to all
	before := list(t, filepath.Dir(path))
	for _, what := range []string{"write", "remove"} {
		assert.Contains(t, as(t, path, what, "2", friends), "operation not permitted", what)
		after := list(t, filepath.Dir(path))
		after[0].modified = before[0].modified // of the sidecar, which was written and put back
		assert.Equal(t, before, after)
		assertIs(t, g, "1", 1)
	}
}
