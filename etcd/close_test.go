package etcd_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/internal/locktest"
)

// The engine waits 1.5 seconds for a Close.
func TestCloseOfStrictLocksDoesNotWaitForASilentService(t *testing.T) {
	s := parallelScene(t, 1)
	network := lab.StartProxy(t)
	b := strictBackend(t, s, through(network))
	locktest.Acquire(t, b, request("n", time.Minute, false))
	network.Set(lab.Drop)
	began := time.Now()
	require.NoError(t, b.Close())
	assert.Less(t, time.Since(began), 1800*time.Millisecond)
}
