//go:build linux || darwin || freebsd

package fileguard_test

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The mark of a writer that waited for a sidecar, which was then deleted, must
// not go into the deleted one.
func TestWaiterForADeletedSidecarTakesTheNewOne(t *testing.T) {
	g, path := newGuard(t)
	inside, leave, left, done := make(chan struct{}), make(chan struct{}), make(chan error), make(chan error)
	go func() {
		left <- guardOf(t, path).Write(context.Background(), 1, 0o600, func(io.Writer) error {
			close(inside)
			<-leave
			return nil
		})
	}()
	<-inside
	go func() { done <- g.WriteFile(context.Background(), 3, []byte("three"), 0o600) }()
	waitUntilOpen(t, side(path), 2)
	require.NoError(t, os.Remove(side(path)))
	close(leave)
	require.NoError(t, <-left)
	require.NoError(t, <-done)
	assertIs(t, g, "three", 3)
}

// waitUntilOpen returns once this process has a file open so many times; where
// the system does not tell, after a while.
func waitUntilOpen(t *testing.T, path string, times int) {
	t.Helper()
	const fds = "/proc/self/fd"
	if _, err := os.Stat(fds); err != nil {
		time.Sleep(50 * time.Millisecond)
		return
	}
	require.Eventually(t, func() bool {
		open := 0
		links, _ := filepath.Glob(fds + "/*")
		for _, link := range links {
			if target, err := os.Readlink(link); err == nil && target == path {
				open++
			}
		}
		return open >= times
	}, patience, time.Millisecond)
}
