//go:build linux || darwin

package file_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/locktest"
)

// The end of a MinHold is waited for, also after Close while the file stays open.
func TestMinHoldOutlastsItsHolder(t *testing.T) {
	const kept = 300 * time.Millisecond
	dir := t.TempDir()
	c, other := newClient(t, dir, nil), newClient(t, dir, nil)
	began := time.Now()
	first := mustLock(t, c, "n", locker.MinHold(kept))
	require.NoError(t, c.Close())
	if _, err := other.TryLock(t.Context(), "n"); time.Since(began) < kept {
		require.ErrorIs(t, err, driver.ErrHeld)
	}
	next := mustLock(t, other, "n") // waits for it
	assert.GreaterOrEqual(t, time.Since(began), kept)
	assert.Greater(t, token(t, next), token(t, first))
	runtime.KeepAlive(first)
}

// Break ends what only a MinHold keeps, and nothing that a living process has.
func TestBreak(t *testing.T) {
	dir := t.TempDir()
	c := newClient(t, dir, &locker.Options{Label: "me"})
	lease := mustLock(t, c, "n", locker.MinHold(time.Hour))
	st := must(c.Inspect(t.Context(), "n"))
	err := c.Break(t.Context(), st)
	require.ErrorIs(t, err, errors.ErrUnsupported)
	assert.ErrorContains(t, err, "process")
	dies(t, lease)
	st = must(c.Inspect(t.Context(), "n"))
	assert.Equal(t, "me", st.Label)
	assert.InDelta(t, time.Hour, st.Remaining, float64(time.Minute))
	require.NoError(t, c.Break(t.Context(), st))
	next := mustLock(t, c, "n")
	assert.Greater(t, token(t, next), token(t, lease))
	require.NoError(t, c.Break(t.Context(), st), "that one is gone")
	require.ErrorIs(t, c.Break(t.Context(), driver.State{Name: "n", Held: true, Holder: "memory 1"}), driver.ErrInvalid)
	assert.NoError(t, next.Renew(t.Context()))

	st, path := must(c.Inspect(t.Context(), "n")), must(filepath.Glob(dir + "/*"))[0]
	require.NoError(t, os.Remove(path))
	require.NoError(t, c.Break(t.Context(), st))
	assert.NoFileExists(t, path, "no new one is made")
}

func TestTokenThatCannotRiseIsAnError(t *testing.T) {
	b := newBackend(t, t.TempDir())
	req := driver.Request{Name: "n", Owner: "a", TTL: time.Minute, Lost: func() {}}
	hold := must(locktest.Ask(t.Context(), b, req)).Hold
	require.NoError(t, hold.(driver.TokenRaiser).RaiseToken(t.Context(), 1<<64-1))
	require.NoError(t, hold.Release(t.Context(), 0))
	req.Owner = "b"
	_, err := locktest.Ask(t.Context(), b, req)
	assert.ErrorContains(t, err, "cannot rise")
}

func TestCheckLooksAtTheDirectory(t *testing.T) {
	for mode, want := range map[os.FileMode]driver.Severity{0o770: driver.SeverityOK, 0o777: driver.SeverityWarning} {
		dir := publicDir(t, mode)
		b := newBackend(t, dir)
		assert.Equal(t, want, must(b.Check(t.Context()))[0].Severity, "%v", mode)
		require.NoError(t, os.Remove(dir))
		assert.Equal(t, driver.SeverityProblem, must(b.Check(t.Context()))[0].Severity)
	}
}

// Files of names that were used once stay: from 10,000 on, the check counts them and says how to remove them.
func TestCheckCountsTheFiles(t *testing.T) {
	dir := t.TempDir()
	if memory, err := os.MkdirTemp("/dev/shm", ""); err == nil { // some disks take minutes for so many
		t.Cleanup(func() { require.NoError(t, os.RemoveAll(memory)) })
		dir = memory
	}
	b := newBackend(t, dir)
	req := driver.Request{Name: "n", Owner: "a", TTL: time.Minute, Lost: func() {}}
	g := must(locktest.Ask(t.Context(), b, req))
	require.NoError(t, g.Hold.Release(t.Context(), 0))
	for i := range 9_998 {
		require.NoError(t, os.WriteFile(filepath.Join(dir, fmt.Sprint(i, []string{".lock", ".turn"}[i%2])), nil, 0o600))
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "other"), nil, 0o600))
	require.Len(t, must(b.Check(t.Context())), 1)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "x.lock"), nil, 0o600))
	found := must(b.Check(t.Context()))
	require.Len(t, found, 2)
	assert.Equal(t, "10000", found[1].Found)

	_, command, _ := strings.Cut(found[1].Advice, "running, ")
	require.NoError(t, exec.Command("sh", "-c", command).Run(), command)
	left := must(os.ReadDir(dir))
	require.Len(t, left, 1)
	assert.Equal(t, "other", left[0].Name())
	req.Owner = "b"
	assert.Greater(t, must(locktest.Ask(t.Context(), b, req)).Token, g.Token)
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

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, err = range newBackend(t, dir).List(ctx, "other") {
	}
	require.ErrorIs(t, err, context.Canceled, "it goes through all files")
}
