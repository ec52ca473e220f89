//go:build linux || darwin

package file_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/file"
	"github.com/golockers/locker/internal/lab"
)

// publicDir returns a directory that every user can reach, with this mode.
func publicDir(t *testing.T, mode os.FileMode) string {
	t.Helper()
	parent, err := os.MkdirTemp("", "locker")
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, os.RemoveAll(parent)) })
	require.NoError(t, os.Chmod(parent, 0o755))
	dir := filepath.Join(parent, "locks")
	require.NoError(t, os.Mkdir(dir, mode))
	require.NoError(t, os.Chmod(dir, mode))
	return dir
}

func modeOf(t *testing.T, path string) os.FileMode {
	t.Helper()
	info, err := os.Stat(path)
	require.NoError(t, err)
	return info.Mode().Perm()
}

// A directory with a mistyped name would exclude nobody.
func TestDirectoryThatDoesNotExistIsAnErrorAndIsNotMade(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "no", "such")
	_, err := file.New(dir)
	assert.ErrorIs(t, err, os.ErrNotExist)
	assert.ErrorContains(t, err, dir+" does not exist")
	_, err = locker.Open(t.Context(), "file://"+dir, nil, file.Openers)
	assert.ErrorContains(t, err, dir+" does not exist")
	assert.NoDirExists(t, filepath.Dir(dir))

	dir = t.TempDir()
	c := newClient(t, dir, nil)
	require.NoError(t, os.RemoveAll(dir))
	_, err = c.TryLock(t.Context(), "n")
	assert.ErrorContains(t, err, dir+" does not exist")
	_, err = c.Lock(t.Context(), "n")
	assert.ErrorContains(t, err, dir+" does not exist")
	assert.NoDirExists(t, dir)
}

// A relative path stays where it was, and two paths to one directory are one service.
func TestPathsOfADirectory(t *testing.T) {
	dir := t.TempDir()
	link := filepath.Join(t.TempDir(), "link")
	require.NoError(t, os.Symlink(dir, link))
	t.Chdir(dir)
	c := newClient(t, ".", nil)
	t.Chdir(t.TempDir())
	mustLock(t, c, "n")
	assert.FileExists(t, filepath.Join(dir, "n.lock"))
	_, err := newClient(t, link, nil).TryLock(t.Context(), "n")
	assert.ErrorIs(t, err, driver.ErrHeld)
}

func TestDirectoryThatCannotBeUsed(t *testing.T) {
	plain := filepath.Join(t.TempDir(), "plain")
	require.NoError(t, os.WriteFile(plain, nil, 0o600))
	for dir, want := range map[string]string{
		"": "no lock directory was given", plain: "is not a directory", plain + "/sub": "cannot keep lock files in",
	} {
		_, err := file.New(dir)
		assert.ErrorContains(t, err, want)
	}
	dir := publicDir(t, 0o555)
	child := lab.StartChild(t, "nobody", dir, "n")
	assert.Equal(t, "cannot keep lock files in "+dir+": permission denied; held false; "+
		"unavailable false", child.Expect(t, "error", patience))
}

// What is said to another user.
func TestUsersWhoShareADirectoryShareLocks(t *testing.T) {
	needRoot(t)
	said := func(dir string) string { return lab.StartChild(t, "nobody", dir, "n").Expect(t, "error", patience) }
	dir := publicDir(t, 0o700)
	used(t, dir, "n") // mode 0600, as the directory says
	require.NoError(t, os.Chmod(dir, 0o777))
	assert.Regexp(t, "n.lock: permission denied; held false; unavailable false$", said(dir))

	dir = publicDir(t, 0o777)
	lease := mustLock(t, newClient(t, dir, nil), "n")
	assert.Contains(t, said(dir), "held true")
	require.NoError(t, lease.Unlock(t.Context()))
	assert.Equal(t, "<nil>; held false; unavailable false", said(dir))
}

func TestFilesGetThePermissionsOfThoseWhoMayWrite(t *testing.T) {
	for dirMode, want := range map[os.FileMode]os.FileMode{0o700: 0o600, 0o755: 0o600, 0o770: 0o660,
		0o775: 0o660, 0o777: 0o666} {
		dir := publicDir(t, dirMode)
		path, _ := used(t, dir, "n")
		assert.Equal(t, want, modeOf(t, path), "directory %v", dirMode)
	}
}

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can be two users")
	}
}

func TestDefaultDirIsTheUsersOwn(t *testing.T) {
	dir := filepath.Join(t.TempDir(), ".local", "state", "locker")
	for range 2 {
		require.NoError(t, file.MakePrivate(dir))
		assert.Equal(t, os.FileMode(0o700), modeOf(t, dir))
	}
	require.NoError(t, os.Chmod(dir, 0o750))
	assert.ErrorContains(t, file.MakePrivate(dir), "chmod 700")
}

func TestOpen(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a b#c")
	require.NoError(t, os.Mkdir(dir, 0o700))
	c, err := locker.Open(t.Context(), "file://"+filepath.Dir(dir)+"/a%20b%23c?ttl=5s", nil, file.Openers)
	require.NoError(t, err)
	mustLock(t, c, "n")
	assert.FileExists(t, filepath.Join(dir, "n.lock"))
	assert.NoError(t, c.Close())

	for url, want := range map[string]string{
		"file://":                  "file:///var/lib/locks",
		"file:///":                 "file:///var/lib/locks",
		"file://locks":             "three slashes",
		"file://./locks":           "three slashes",
		"file://localhost/var/tmp": "three slashes",
		"file://me@/var/tmp":       "three slashes",
		"file:///var/tmp?x=1":      "unknown parameter",
	} {
		_, err := locker.Open(t.Context(), url, nil, file.Openers)
		assert.ErrorIs(t, err, driver.ErrInvalid, url)
		assert.ErrorContains(t, err, want)
	}
}
