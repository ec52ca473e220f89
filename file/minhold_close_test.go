package file_test

import (
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/file"
)

// The kernel keeps the lock for as long as its file is open.
func TestMinHoldEndsAlsoAfterClose(t *testing.T) {
	dir := "file://" + t.TempDir()
	c, err := file.Openers.Open(t.Context(), dir, nil)
	require.NoError(t, err)
	lease, err := c.Lock(t.Context(), "a", locker.MinHold(200*time.Millisecond))
	require.NoError(t, err)
	require.NoError(t, c.Close())
	other, err := file.Openers.Open(t.Context(), dir, nil)
	require.NoError(t, err)
	defer other.Close()
	_, err = other.TryLock(t.Context(), "a")
	require.ErrorIs(t, err, locker.ErrHeld)
	assert.Eventually(t, func() bool {
		next, err := other.TryLock(t.Context(), "a")
		return err == nil && next.Unlock(t.Context()) == nil
	}, 10*time.Second, 10*time.Millisecond)
	runtime.KeepAlive(lease)
	runtime.KeepAlive(c)
}
