package memory_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/memory"
)

// A lock without a deadline ends with its removal only, however long that takes.
func TestAnUnlockDuringAnOutageOfManyTTLs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		c := locker.New(b, nil)
		l, err := c.Lock(t.Context(), "job")
		require.NoError(t, err)
		b.Fail(fmt.Errorf("cable cut: %w", locker.ErrUnavailable))
		err = l.Unlock(t.Context())
		require.ErrorIs(t, err, locker.ErrUnavailable)
		assert.NotContains(t, err.Error(), "at the latest")
		time.Sleep(time.Hour)
		b.Fail(nil)
		time.Sleep(2 * time.Second)
		l, err = c.TryLock(t.Context(), "job")
		require.NoError(t, err)
		require.NoError(t, l.Unlock(t.Context()))
		require.NoError(t, c.Close())
	})
}
