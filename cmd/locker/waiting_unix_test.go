//go:build unix

package main_test

import (
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/internal/lab"
)

func TestSignalEndsTheWaitForAService(t *testing.T) {
	s := startService(t)
	holder := start(t, []with{s.direct()}, locked(nil, "a", "listen")...)
	holder.expect("group")
	waiter := start(t, []with{s.through()}, "run", "a", "--", "true")
	require.Eventually(t, func() bool { return s.proxy.Stats().Requests.Sent > 0 }, patience, time.Millisecond)
	waiter.signal(syscall.SIGINT)
	assert.Equal(t, 128+2, waiter.shellStatus())
	assert.Empty(t, waiter.complaints())
	holder.signal(syscall.SIGTERM)
	assert.Equal(t, 0, holder.wait())
	assert.False(t, s.kept(t))
}

func TestOutageDuringTheWaitIsNotHeld(t *testing.T) {
	s := startService(t)
	// Who waits asks again when the holder's TTL could be over, and finds the outage.
	holder := start(t, []with{s.direct()}, locked([]string{"--ttl", "1s"}, "a", "listen")...)
	holder.expect("group")
	waiter := start(t, []with{s.through()}, "run", "--wait", "3s", "a", "--", "echo", "ran")
	require.Eventually(t, func() bool { return s.MustDo(t, "EXISTS", lockKey+":wait") == int64(1) }, patience, time.Millisecond)
	s.proxy.Set(lab.Reset)
	assert.Equal(t, 69, waiter.wait(), waiter.said())
	assert.Empty(t, waiter.stdout())
}

func TestTTLThatTheServiceCannotDo(t *testing.T) {
	s := startService(t)
	r := do(t, []with{s.direct()}, "run", "--ttl", "1ms", "a", "--", "echo", "ran")
	assert.Equal(t, 64, r.status, r.stderr)
	assert.Empty(t, r.stdout)
}
