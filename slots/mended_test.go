package slots_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/memory"
	"github.com/golockers/locker/slots"
)

// shards has each name on a server of its own, one of which may be away.
type shards struct {
	*memory.Backend
	away atomic.Pointer[string]
}

func (s *shards) Acquire(ctx context.Context, req locker.Request) (locker.Grant, error) {
	if away := s.away.Load(); away != nil && strings.HasSuffix(req.Name, *away) {
		return locker.Grant{}, fmt.Errorf("shard is away: %w", locker.ErrUnavailable)
	}
	return s.Backend.Acquire(ctx, req)
}

// One slot is out of reach for longer than Lock's patience while the other is held: it is
// asked for again when it comes back.
func TestASlotThatComesBackIsUsed(t *testing.T) {
	for _, patience := range []time.Duration{0, locker.NoPatience} {
		synctest.Test(t, func(t *testing.T) {
			s := &shards{Backend: memory.New()}
			c, other := locker.New(s, &locker.Options{Patience: patience}), locker.New(s.Backend, nil)
			held, err := other.Lock(t.Context(), "gpu/1")
			require.NoError(t, err)
			theirs, err := other.Lock(t.Context(), "gpu/0")
			require.NoError(t, err)
			ctx, cancel := context.WithTimeout(t.Context(), 24*time.Hour)
			defer cancel()
			name := "/0"
			s.away.Store(&name)
			time.AfterFunc(time.Minute, func() { s.away.Store(nil); _ = theirs.Unlock(ctx) })
			began := time.Now()
			slot, err := slots.Lock(ctx, c, "gpu", 2)
			require.NoError(t, err)
			assert.Equal(t, 0, slot.Number)
			assert.Less(t, time.Since(began), time.Minute+5*time.Second)
			require.NoError(t, slot.Unlock(ctx))
			require.NoError(t, held.Unlock(ctx))
			require.NoError(t, c.Close())
			require.NoError(t, other.Close())
		})
	}
}

// What cannot work is refused before the service is asked.
func TestSharedIsRefusedBeforeASlotIsTaken(t *testing.T) {
	c := locker.New(memory.New(), nil)
	defer c.Close()
	_, err := slots.TryLock(t.Context(), c, "gpu", 1, locker.Shared(), locker.MinHold(time.Hour))
	require.ErrorIs(t, err, locker.ErrInvalid)
	assert.Zero(t, c.Stats().Attempts)
	slot, err := slots.TryLock(t.Context(), c, "gpu", 1)
	require.NoError(t, err)
	require.NoError(t, slot.Unlock(t.Context()))
}
