//go:build linux || darwin

package file_test

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/file"
	"github.com/golockers/locker/internal/locktest"
)

// dies ends a lease as the end of its process would.
func dies(t *testing.T, lease *locker.Lease) {
	t.Helper()
	var f *os.File
	require.True(t, lease.As(&f))
	require.NoError(t, f.Close())
}

func TestMinHoldOutlastsItsHolder(t *testing.T) {
	dir := t.TempDir()
	c, other := newClient(t, dir, &locker.Options{Label: "me"}), newClient(t, dir, nil)
	const long, short = time.Hour, 300 * time.Millisecond
	began := time.Now()
	first, err := c.Lock(t.Context(), "short", locker.MinHold(short))
	require.NoError(t, err)
	lease, err := c.Lock(t.Context(), "long", locker.MinHold(long))
	require.NoError(t, err)
	dies(t, first)
	dies(t, lease)
	for _, name := range []string{"short", "long"} {
		_, err = other.TryLock(t.Context(), name)
		require.ErrorIs(t, err, locker.ErrHeld)
	}
	next := mustLock(t, other, "short") // waits for it
	assert.GreaterOrEqual(t, time.Since(began), short)
	assert.Greater(t, token(t, next), token(t, first))
	require.NoError(t, next.Unlock(t.Context()))

	st, err := other.Inspect(t.Context(), "long")
	require.NoError(t, err)
	assert.True(t, st.Held)
	assert.Equal(t, "me", st.Label)
	assert.InDelta(t, float64(long), float64(st.Remaining), float64(time.Minute))
	st, err = locktest.Break(t.Context(), other, "long")
	require.NoError(t, err)
	assert.Equal(t, "me", st.Label)
	next = mustLock(t, other, "long")
	assert.Greater(t, token(t, next), token(t, lease))
	_, err = locktest.Break(t.Context(), c, "long")
	require.ErrorIs(t, err, errors.ErrUnsupported)
	assert.ErrorContains(t, err, "process")
	require.ErrorIs(t, c.Break(t.Context(), locker.State{Name: "long", Held: true, Holder: "memory 1"}), locker.ErrInvalid)
	require.NoError(t, next.Unlock(t.Context()))
}

func TestRaisedTokens(t *testing.T) {
	c := newClient(t, t.TempDir(), nil)
	lease := mustLock(t, c, "n")
	require.NoError(t, lease.RaiseToken(t.Context(), token(t, lease)+1e15))
	st, err := c.Inspect(t.Context(), "n")
	require.NoError(t, err)
	assert.Equal(t, token(t, lease), st.Token, "the holder's stays")
	dies(t, lease)
	assert.Error(t, lease.RaiseToken(t.Context(), token(t, lease)+2e15))
}

func TestCheckTellsWhoSharesTheDirectory(t *testing.T) {
	for mode, want := range map[os.FileMode]locker.Severity{0o700: locker.SeverityInfo,
		0o770: locker.SeverityOK, 0o777: locker.SeverityWarning} {
		dir := publicDir(t, mode)
		b, err := file.New(dir)
		require.NoError(t, err)
		found, err := b.Check(t.Context())
		require.NoError(t, err)
		last := found[len(found)-1]
		assert.Equal(t, want, last.Severity, "%v", mode)
		assert.Contains(t, b.Guarantees().RestsOn, map[os.FileMode]string{0o700: "one user",
			0o770: "group", 0o777: "all users"}[mode])
		require.NoError(t, os.Remove(dir))
		found, err = b.Check(t.Context())
		require.NoError(t, err)
		assert.Equal(t, locker.SeverityProblem, found[0].Severity)
	}
}

func TestListOpensOnlyLockFiles(t *testing.T) {
	dir := t.TempDir()
	c := newClient(t, dir, nil)
	mustLock(t, c, "n")
	require.NoError(t, syscall.Mkfifo(filepath.Join(dir, "pipe.lock"), 0o600)) // opening it would hang
	require.NoError(t, os.Mkdir(filepath.Join(dir, "dir.lock"), 0o700))
	require.NoError(t, os.Symlink("/dev/zero", filepath.Join(dir, "zero.lock"))) // reading it would never end
	big, err := os.Create(filepath.Join(dir, "big.lock"))
	require.NoError(t, err)
	require.NoError(t, big.Truncate(300<<20))
	require.NoError(t, big.Close())
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	var names []string
	for e, err := range c.List(t.Context(), "") {
		require.NoError(t, err)
		names = append(names, e.Name)
	}
	runtime.ReadMemStats(&after)
	assert.Equal(t, []string{"n"}, names)
	assert.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(10<<20), "it read the big file")
}
