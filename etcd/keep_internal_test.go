package etcd

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/locktest"
)

// acquire asks for a lock that is free.
func (c *searchClient) acquire(t *testing.T, req driver.Request) (h *hold, token uint64) {
	t.Helper()
	g := locktest.Acquire(t, c, req)
	return g.Hold.(*hold), g.Token
}

func (c *searchClient) inspect(t *testing.T, name string) driver.State {
	t.Helper()
	st, err := c.Inspect(t.Context(), name)
	require.NoError(t, err)
	return st
}

// A lock that is kept is nobody's, keeps others out, and ends when its MinHold does: with its TTL, its
// session, its client and StrictExpiry it would last for longer.
func TestKeptLockEnds(t *testing.T) {
	const minHold, second = 3 * time.Second, time.Second
	for _, strict := range []bool{false, true} {
		for _, shared := range []bool{false, true} {
			calmly(t, func(t *testing.T, s *server, c, other *searchClient) {
				c.opts.StrictExpiry = strict
				req := asks("kept", minHold)
				req.TTL, req.Shared = time.Minute, shared
				ctx := t.Context()
				h, token := c.acquire(t, req)
				began := time.Now()
				held := c.inspect(t, "n")
				assert.WithinDuration(t, began, held.Since, second)
				assert.WithinRange(t, held.KeptUntil, began.Add(minHold-second), began.Add(minHold+2*second))
				isHeld, err := Held(someLease{h})
				require.NoError(t, err)
				writes := func() (does bool) {
					s.do(func() { _, does = s.branch(&pb.TxnRequest{Compare: []*pb.Compare{(*pb.Compare)(&isHeld)}}, s.keys) })
					return does
				}
				assert.True(t, writes())
				writer := other.askLater(t, "writer")
				require.NoError(t, h.Release(ctx, minHold-time.Since(began)))
				assert.Equal(t, 1, s.floors())
				assert.False(t, s.has(h.key))
				assert.False(t, writes(), "to who writes beside it, it is no longer held")
				_, err = h.Renew(ctx)
				require.ErrorIs(t, err, driver.ErrLost)
				require.ErrorIs(t, h.RaiseToken(ctx, 1<<40), driver.ErrLost)
				require.NoError(t, h.Release(ctx, time.Hour), "it is kept already")
				st := c.inspect(t, "n")
				assert.InDelta(t, minHold-time.Since(began)+second, st.Remaining, float64(second))
				assert.WithinDuration(t, held.Since, st.Since, second)
				assert.WithinDuration(t, held.KeptUntil, st.KeptUntil, second)
				st.Remaining, st.Since, st.KeptUntil = held.Remaining, held.Since, held.KeptUntil
				held.Waiters, held.Waiting = 1, []string{""}
				assert.Equal(t, held, st, "it is told as before")
				assert.Equal(t, token, st.Token)
				require.NoError(t, c.Close())
				next := <-writer
				assert.GreaterOrEqual(t, time.Since(began), minHold)
				assert.LessOrEqual(t, time.Since(began), minHold*101/100+c.Guarantees().MinHoldSlack)
				require.NoError(t, next.Hold.Release(ctx, 0))
				assert.Zero(t, s.floors())
			})
		}
	}
}

// someLease is as much of one as Held asks for.
type someLease struct{ driver.Aser }

func (someLease) Name() string { return "" }
func (someLease) Err() error   { return nil }
