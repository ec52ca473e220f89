package redisnode_test

import (
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/golockers/locker/internal/redisnode"
)

// The driver prints what a dialer says to standard error: not what a URL has in the host's place, which may be half of
// a password.
func TestAFailedDialDoesNotSayWhereTo(t *testing.T) {
	hosts := []string{"127.0.0.1:1", "[::1]:1", "p4ss.invalid:6379", "p4ss", "p4ss:w0rd:6379"}
	dial := redisnode.Dialer(nil, time.Second, hosts...)
	for _, host := range hosts {
		_, err := dial(t.Context(), "tcp", host)
		if assert.Error(t, err) {
			assert.NotContains(t, err.Error(), host)
			assert.NotContains(t, err.Error(), "p4ss")
			assert.NotContains(t, err.Error(), "w0rd")
		}
	}
	_, err := dial(t.Context(), "tcp", "127.0.0.1:1")
	assert.ErrorIs(t, err, syscall.ECONNREFUSED)
	assert.Equal(t, redisnode.Passing, redisnode.Classify(err))
	_, err = dial(t.Context(), "tcp", "127.0.0.2:1")
	assert.ErrorContains(t, err, "cannot connect to 127.0.0.2:1: ", "which Sentinels have named")
}
