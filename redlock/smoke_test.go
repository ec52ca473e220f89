package redlock_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/redlock"
)

func TestLockIsOnAllNodesAndGoneAfterRelease(t *testing.T) {
	for _, n := range []int{1, 2, 3, 4, 5} {
		for _, fencing := range []bool{false, true} {
			s := durable(t, n)
			a, b := s.backend(t, redlock.Options{Fencing: fencing}), s.backend(t, redlock.Options{Fencing: fencing})
			g := acquire(t, a, "x", 10*time.Second)
			within(t, 10*time.Second, "all nodes have it", func() bool { return s.holders(t, "x") == n })
			refused(t, b, "x", 10*time.Second)
			v, err := g.Hold.Renew(t.Context())
			require.NoError(t, err)
			assert.Equal(t, 10*time.Second, v.TTL)
			st, err := b.Inspect(t.Context(), "x")
			require.NoError(t, err)
			assert.True(t, st.Held)
			assert.Equal(t, "test", st.Label)
			assert.Equal(t, g.Token, st.Token)
			assert.Equal(t, fencing, g.Token != 0)
			release(t, g)
			within(t, 10*time.Second, "no node has it", func() bool { return s.holders(t, "x") == 0 })
			g2 := acquire(t, b, "x", 10*time.Second)
			if fencing {
				assert.Greater(t, g2.Token, g.Token)
			}
			release(t, g2)
		}
	}
}
