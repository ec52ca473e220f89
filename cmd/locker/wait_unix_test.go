//go:build unix

package main_test

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestWaitReturnsWhenTheNameIsFree(t *testing.T) {
	backend := []with{fileBackend(t)}
	assert.Equal(t, result{}, do(t, backend, "wait", "a", "b"))
	holder := start(t, backend, locked(nil, "b", "listen")...)
	holder.expect("group")
	r := do(t, backend, "wait", "--wait", "100ms", "a", "b")
	assert.Equal(t, 75, r.status)
	assert.Contains(t, r.stderr, `"b"`)
	waiter := start(t, backend, "wait", "a", "b")
	holder.signal(syscall.SIGTERM)
	holder.wait()
	assert.Equal(t, 0, waiter.wait())
	assert.Empty(t, waiter.said())
}

func TestCheckUsesTheService(t *testing.T) {
	r := do(t, nil, "check", "file://"+t.TempDir())
	assert.Equal(t, 0, r.status, r.stderr)
	assert.Contains(t, r.stdout, "lock, renew and unlock")

	r = do(t, nil, "check", "redis://127.0.0.1:1")
	assert.Equal(t, 69, r.status)
	assert.Empty(t, r.stdout)
	assert.Equal(t, 64, do(t, nil, "check", "").status)
}
