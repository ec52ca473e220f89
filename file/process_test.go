//go:build linux || darwin

package file_test

import (
	"os"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/internal/lab"
)

func TestTokensRiseOverCrashes(t *testing.T) {
	dir := t.TempDir()
	var last uint64
	for range 8 {
		child := lab.StartChild(t, "hold", dir, "n")
		n, err := strconv.ParseUint(child.Expect(t, "holding", patience), 10, 64)
		require.NoError(t, err)
		require.Greater(t, n, last)
		last = n
		child.Kill()
	}
	assert.Greater(t, token(t, mustLock(t, newClient(t, dir, nil), "n")), last)
}

func TestChildProcessesDoNotKeepTheLock(t *testing.T) {
	dir := t.TempDir()
	parent := lab.StartChild(t, "heir", dir, "n", "not given")
	pid := parent.Expect(t, "child", patience)
	t.Cleanup(func() { killByPid(t, pid) })
	parent.Kill()
	_, err := newClient(t, dir, nil).TryLock(t.Context(), "n")
	assert.NoError(t, err, "the descriptor has to be closed on exec")
}

func TestChildThatIsGivenTheFileKeepsTheLockWhenItsParentDies(t *testing.T) {
	dir := t.TempDir()
	parent := lab.StartChild(t, "heir", dir, "n", "given")
	pid := parent.Expect(t, "child", patience)
	t.Cleanup(func() { killByPid(t, pid) })
	parent.Kill()
	c := newClient(t, dir, nil)
	_, err := c.TryLock(t.Context(), "n")
	require.ErrorIs(t, err, locker.ErrHeld)
	st, err := c.Inspect(t.Context(), "n")
	require.NoError(t, err)
	assert.True(t, st.Held)

	killByPid(t, pid)
	lease := mustLock(t, c, "n")
	assert.NoError(t, lease.Unlock(t.Context()))
}

func TestUnlockFreesTheLockAlsoForAChildThatHasTheFile(t *testing.T) {
	dir := t.TempDir()
	parent := lab.StartChild(t, "heir", dir, "n", "given")
	pid := parent.Expect(t, "child", patience)
	t.Cleanup(func() { killByPid(t, pid) })
	parent.Send(t, "unlock")
	require.Equal(t, "<nil>", parent.Expect(t, "unlocked", patience))
	_, err := newClient(t, dir, nil).TryLock(t.Context(), "n")
	assert.NoError(t, err)
}

// killByPid ends a grandchild, by the ID that its parent said.
func killByPid(t *testing.T, pid string) {
	t.Helper()
	n, err := strconv.Atoi(pid)
	require.NoError(t, err)
	p, err := os.FindProcess(n)
	require.NoError(t, err)
	_ = p.Kill()
}

func TestPausedHolderHolds(t *testing.T) {
	lab.NeedPause(t)
	dir := t.TempDir()
	child := lab.StartChild(t, "hold", dir, "n")
	child.Expect(t, "holding", patience)
	child.Pause()
	c := newClient(t, dir, nil)
	_, err := c.TryLock(t.Context(), "n")
	assert.ErrorIs(t, err, locker.ErrHeld)
	child.Resume()
	child.Send(t, "unlock")
	child.Expect(t, "unlocked <nil>", patience)
	mustLock(t, c, "n")
}
