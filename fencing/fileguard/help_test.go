//go:build linux || darwin || freebsd

package fileguard_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/fencing"
	"github.com/golockers/locker/fencing/fileguard"
)

const patience = 30 * time.Second

// newGuard returns a guard of a file in a directory of its own.
func newGuard(t testing.TB) (*fileguard.Guard, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "f")
	return guardOf(t, path), path
}

func guardOf(t testing.TB, path string) *fileguard.Guard {
	t.Helper()
	g, err := fileguard.New(path)
	require.NoError(t, err)
	return g
}

func mustWrite(t testing.TB, g *fileguard.Guard, token fencing.Token, text string) {
	t.Helper()
	require.NoError(t, g.WriteFile(t.Context(), token, []byte(text), 0o644))
}

// assertIs checks content and mark; "" is no file.
func assertIs(t testing.TB, g *fileguard.Guard, text string, mark fencing.Token) {
	t.Helper()
	got, m, err := g.ReadFile(t.Context())
	if text == "" {
		assert.ErrorIs(t, err, fs.ErrNotExist)
	} else if assert.NoError(t, err) {
		assert.Equal(t, text, string(got))
	}
	assert.Equal(t, mark, m)
	alone, err := g.Mark(t.Context())
	assert.NoError(t, err)
	assert.Equal(t, mark, alone)
}

func assertStale(t testing.TB, err error, resource string, token, mark fencing.Token) {
	t.Helper()
	assert.ErrorIs(t, err, fencing.ErrStale)
	var stale *fencing.StaleError
	if assert.ErrorAs(t, err, &stale) {
		assert.Equal(t, fencing.StaleError{Resource: resource, Token: token, Mark: mark}, *stale)
	}
}

// entry is all that there is to see of a file.
type entry struct {
	name, content  string
	mode           fs.FileMode
	inode          uint64
	modified       time.Time
	uid, gid, link uint32
}

// list returns what is in a directory, but for sidecars that nothing was noted in.
func list(t testing.TB, dir string) []entry {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	var all []entry
	for _, e := range entries {
		info, err := e.Info()
		require.NoError(t, err)
		content, err := os.ReadFile(filepath.Join(dir, e.Name()))
		require.NoError(t, err)
		st, ok := info.Sys().(*syscall.Stat_t)
		require.True(t, ok)
		all = append(all, entry{e.Name(), string(content), info.Mode(), st.Ino, info.ModTime(), st.Uid, st.Gid, uint32(st.Nlink)})
	}
	return all
}

// names returns the names of what is in a directory.
func names(t testing.TB, dir string) []string {
	t.Helper()
	var all []string
	for _, e := range list(t, dir) {
		all = append(all, e.name)
	}
	return all
}

func inode(t testing.TB, path string) uint64 {
	t.Helper()
	info, err := os.Lstat(path)
	require.NoError(t, err)
	st, ok := info.Sys().(*syscall.Stat_t)
	require.True(t, ok)
	return st.Ino
}

var errMine = errors.New("my own trouble")
