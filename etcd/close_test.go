package etcd_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/internal/locktest"
)

// A driver that does not heed that its requests are given up takes six seconds. How long Close takes by itself is
// measured in virtual time: TestCloseOfStrictLocksTakesNoLongerThanTheEngineWaits.
func TestCloseOfStrictLocksDoesNotWaitForASilentService(t *testing.T) {
	s := parallelScene(t, 1)
	network := lab.StartProxy(t)
	b := strictBackend(t, s, through(network))
	locktest.Acquire(t, b, request("n", time.Minute, false))
	network.Set(lab.Drop)
	began := time.Now()
	require.NoError(t, b.Close())
	assert.Less(t, time.Since(began), 5*time.Second)
}
