package single_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/single"
)

// A request that hangs ends with the client, where that is the backend's own: Close neither waits for it nor fails.
func TestCloseDoesNotWaitForAServerThatHangs(t *testing.T) {
	lab.NeedPause(t)
	s := lab.StartRedis(t)
	u, err := locker.ParseURL("redis://" + s.Addr())
	require.NoError(t, err)
	b, err := single.Open(t.Context(), u, locker.Options{})
	require.NoError(t, err)
	s.Pause()
	defer s.Resume()
	ctx, cancel := context.WithTimeout(t.Context(), 40*time.Millisecond)
	defer cancel()
	_, err = b.Acquire(ctx, locker.Request{Name: "n", Owner: "me", TTL: time.Minute})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	assert.NoError(t, b.Close())
}
