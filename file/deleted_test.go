//go:build linux || darwin

package file_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/driver"
)

func waitUntilLost(t *testing.T, lease *locker.Lease) {
	t.Helper()
	select {
	case <-lease.Done():
	case <-time.After(patience):
		require.Fail(t, "the holder was not told")
	}
	assert.ErrorIs(t, lease.Err(), driver.ErrLost)
}

func TestHolderWhoseFileWasDeletedIsToldAndTheTokenStillRises(t *testing.T) {
	for what, gone := range map[string]func(path string) error{
		"file": os.Remove,
		"directory": func(path string) error {
			return errors.Join(os.RemoveAll(filepath.Dir(path)), os.Mkdir(filepath.Dir(path), 0o700))
		},
		"replaced": func(path string) error {
			if err := os.WriteFile(path+".new", nil, 0o600); err != nil {
				return err
			}
			return os.Rename(path+".new", path)
		},
	} {
		t.Run(what, func(t *testing.T) {
			dir := t.TempDir()
			a, b := newClient(t, dir, &locker.Options{TTL: 300 * time.Millisecond}), newClient(t, dir, nil)
			first := mustLock(t, a, "n")
			require.NoError(t, first.Renew(t.Context()))
			require.NoError(t, gone(lockFile(t, dir)))
			second, err := b.TryLock(t.Context(), "n")
			require.NoError(t, err)
			assert.Greater(t, token(t, second), token(t, first))

			waitUntilLost(t, first)
			assert.ErrorIs(t, first.Unlock(t.Context()), driver.ErrLost)
			// The end of the old one is not the end of the new one.
			_, err = a.TryLock(t.Context(), "n")
			assert.ErrorIs(t, err, driver.ErrHeld)
			assert.NoError(t, second.Renew(t.Context()))
			assert.NoError(t, second.Unlock(t.Context()))
		})
	}
}

// A cleaner that locks what it deletes takes nothing away from a holder. What
// it does to those who have opened the file and not locked it yet must not make
// two of them hold.
func TestCleanerAmongThoseWhoLock(t *testing.T) {
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var inside atomic.Int32
	var last atomic.Uint64
	var wg sync.WaitGroup
	for range 4 {
		c := newClient(t, dir, nil)
		wg.Go(func() {
			for ctx.Err() == nil {
				lease := mustLock(t, c, "n")
				assert.EqualValues(t, 1, inside.Add(1), "two hold")
				assert.Less(t, last.Swap(token(t, lease)), token(t, lease))
				inside.Add(-1)
				assert.NoError(t, lease.Unlock(t.Context()))
			}
		})
	}
	path := filepath.Join(dir, "n.lock")
	for began, deleted := time.Now(), 0; deleted < 20 || time.Since(began) < time.Second; {
		if !assert.Less(t, time.Since(began), time.Minute, "deleted: %d", deleted) {
			break
		}
		f, err := os.Open(path)
		if err != nil {
			continue
		}
		if syscall.Flock(int(f.Fd()), syscall.LOCK_EX) == nil && os.Remove(path) == nil {
			deleted++
		}
		assert.NoError(t, f.Close())
	}
	cancel()
	wg.Wait()
}
