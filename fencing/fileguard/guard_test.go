//go:build linux || darwin || freebsd

package fileguard_test

import (
	"context"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/fencing"
	"github.com/golockers/locker/fencing/fileguard"
)

func TestLowerTokenChangesNothing(t *testing.T) {
	g, path := newGuard(t)
	assertIs(t, g, "", 0)
	mustWrite(t, g, 7, "seven")
	assertIs(t, g, "seven", 7)
	mustWrite(t, g, 7, "the same holder goes on")
	mustWrite(t, g, 9, "nine")
	assertIs(t, g, "nine", 9)

	before := list(t, filepath.Dir(path))
	other := guardOf(t, path) // as another process would have
	for _, token := range []fencing.Token{8, 7, 1} {
		assertStale(t, other.WriteFile(t.Context(), token, []byte("lower"), 0o600), path, token, 9)
		assertStale(t, other.Remove(t.Context(), token), path, token, 9)
		assertStale(t, other.Write(t.Context(), token, 0o600, func(io.Writer) error {
			t.Error("fill was called for a token that is refused")
			return nil
		}), path, token, 9)
	}
	assert.ErrorIs(t, other.WriteFile(t.Context(), 0, nil, 0o600), fencing.ErrMissing)
	assert.ErrorIs(t, other.Remove(t.Context(), 0), fencing.ErrMissing)
	assert.Equal(t, before, list(t, filepath.Dir(path)), "not a byte, an inode or a time")
	assertIs(t, g, "nine", 9)
}

func TestTokensAreComparedExactly(t *testing.T) {
	g, path := newGuard(t)
	for _, token := range []fencing.Token{1, 10, 1<<53 - 1, 1 << 53, 1<<53 + 1, 1 << 63, math.MaxUint64 - 1, math.MaxUint64} {
		mustWrite(t, g, token, token.String())
		assertIs(t, g, token.String(), token)
		if token > 1 {
			assertStale(t, g.WriteFile(t.Context(), token-1, nil, 0o600), path, token-1, token)
		}
	}
}

func TestRemoveIsGuardedAndKeepsTheMark(t *testing.T) {
	g, path := newGuard(t)
	require.NoError(t, g.Remove(t.Context(), 3), "there is nothing to remove")
	assertIs(t, g, "", 3)
	mustWrite(t, g, 5, "five")
	require.NoError(t, g.Remove(t.Context(), 7))
	assertIs(t, g, "", 7)
	assert.Equal(t, []string{".f.fence"}, names(t, filepath.Dir(path)))
	require.NoError(t, g.Remove(t.Context(), 7), "once more")
	assertStale(t, g.WriteFile(t.Context(), 6, []byte("six"), 0o600), path, 6, 7)
	assertIs(t, g, "", 7)
	mustWrite(t, g, 8, "eight")
}

func TestForgetLeavesTheFile(t *testing.T) {
	g, path := newGuard(t)
	require.NoError(t, g.Forget(t.Context()))
	assert.Empty(t, names(t, filepath.Dir(path)))
	mustWrite(t, g, 9, "nine")
	require.NoError(t, g.Forget(t.Context()))
	assertIs(t, g, "nine", 0)
	assert.Equal(t, []string{"f"}, names(t, filepath.Dir(path)))
	mustWrite(t, g, 1, "one")
	assertIs(t, g, "one", 1)
}

func TestFailedFillChangesNothing(t *testing.T) {
	g, path := newGuard(t)
	mustWrite(t, g, 3, "three")
	before := list(t, filepath.Dir(path))
	half := func(w io.Writer) error {
		_, err := w.Write(make([]byte, 1<<20))
		require.NoError(t, err)
		return errMine
	}
	err := g.Write(t.Context(), 5, 0o600, half)
	assert.ErrorIs(t, err, errMine)
	assert.Equal(t, before, list(t, filepath.Dir(path)))

	assert.PanicsWithValue(t, "mine", func() {
		_ = g.Write(t.Context(), 5, 0o600, func(io.Writer) error { panic("mine") })
	})
	assert.Equal(t, before, list(t, filepath.Dir(path)))

	ctx, cancel := context.WithCancelCause(t.Context())
	err = g.Write(ctx, 5, 0o600, func(w io.Writer) error {
		cancel(errMine)
		return nil
	})
	assert.ErrorIs(t, err, errMine, "the cause of the context")
	assert.Equal(t, before, list(t, filepath.Dir(path)))
	mustWrite(t, g, 4, "four")
	assertIs(t, g, "four", 4)
}

func TestContextBoundsTheWait(t *testing.T) {
	g, path := newGuard(t)
	mustWrite(t, g, 1, "one")
	inside, leave, left := make(chan struct{}), make(chan struct{}), make(chan error)
	go func() {
		left <- guardOf(t, path).Write(context.Background(), 2, 0o600, func(io.Writer) error {
			close(inside)
			<-leave
			return nil
		})
	}()
	<-inside
	ctx, cancel := context.WithCancelCause(t.Context())
	done := make(chan error)
	go func() { done <- g.WriteFile(ctx, 3, []byte("three"), 0o600) }()
	assertIs(t, g, "one", 1) // readers do not wait
	cancel(errMine)
	assert.ErrorIs(t, <-done, errMine)
	assert.ErrorIs(t, g.WriteFile(ctx, 3, nil, 0o600), errMine)
	assert.ErrorIs(t, g.Forget(ctx), errMine)
	_, err := g.Mark(ctx)
	assert.ErrorIs(t, err, errMine)
	close(leave)
	require.NoError(t, <-left)
	mustWrite(t, g, 3, "three")
	assertIs(t, g, "three", 3)
}

func TestNamesThatCannotBeGuardedAreInvalid(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"", ".", "..", "/", "a/", "a\x00b", ".f.fence", ".f.fence-new", "..fence", strings.Repeat("x", 245)} {
		path := name
		if name != "" {
			path = dir + "/" + name
		}
		_, err := fileguard.New(path)
		assert.ErrorIs(t, err, locker.ErrInvalid, "%q", name)
	}
	for _, name := range []string{"f.fence", ".f", ".fence-newer", "本", "a b\n", strings.Repeat("x", 244)} {
		g := guardOf(t, filepath.Join(dir, name))
		mustWrite(t, g, 1, "one")
		assertIs(t, g, "one", 1)
	}
	_, err := fileguard.New(filepath.Join(dir, "missing", "f"))
	assert.ErrorIs(t, err, os.ErrNotExist)
	_, err = fileguard.New(filepath.Join(dir, "f.fence", "f"))
	assert.ErrorContains(t, err, "not a directory")

	g := guardOf(t, filepath.Join(dir, "g"))
	assert.ErrorIs(t, g.WriteFile(t.Context(), 1, nil, os.ModeSetuid|0o600), locker.ErrInvalid)
	assert.ErrorIs(t, g.Write(t.Context(), 1, 0o600, nil), locker.ErrInvalid)
}

func TestRelativePathStaysWhereItWas(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	g := guardOf(t, "f")
	t.Chdir(t.TempDir())
	mustWrite(t, g, 2, "two")
	text, err := os.ReadFile(filepath.Join(dir, "f"))
	require.NoError(t, err)
	assert.Equal(t, "two", string(text))
	assertStale(t, g.Remove(t.Context(), 1), "f", 1, 2)
}
