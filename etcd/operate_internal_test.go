package etcd

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/locktest"
)

// onBreak has f see a client's Breaks before they are sent.
func (c *searchClient) onBreak(f func(r *sent)) {
	c.onRequest(func(r *sent) (fate, error) {
		if req, ok := r.args.(*pb.TxnRequest); ok && len(req.Success) > 0 && req.Success[0].GetRequestTxn() != nil {
			f(r)
		}
		return r.send()
	})
}

// A page of the service may end between the keys of one name.
func TestListGoesOverPages(t *testing.T) {
	calmly(t, func(t *testing.T, s *server, c, _ *searchClient) {
		const names = 1010
		s.keys[c.keys.queue("a")+"A.0"] = &mvccpb.KeyValue{Key: []byte(c.keys.queue("a") + "A.0"), Value: []byte("o:test")}
		for i := range 2 * names { // one holds, and one waits
			key := fmt.Sprintf("%sA.%d", c.keys.queue(fmt.Sprintf("m%04d", i/2)), i%2)
			s.keys[key] = &mvccpb.KeyValue{Key: []byte(key), Value: []byte("o:test"), CreateRevision: int64(1 + i)}
		}
		for i, prefix := range []string{"m", ""} { // and a key more, so that a page ends elsewhere
			told := map[string]bool{}
			for st, err := range c.List(t.Context(), prefix) {
				require.NoError(t, err)
				require.False(t, told[st.Name], "%s twice", st.Name)
				told[st.Name] = true
				require.True(t, st.Held)
				require.Equal(t, "test", st.Label)
				require.Equal(t, st.Name != "a", st.Waiters == 1, st.Name)
			}
			assert.Len(t, told, names+i)
		}
	})
}

// The first copy of a Break has its effect, and the client has the name again, under the same key, when the second comes.
func TestBreakThatIsSentTwiceBreaksOne(t *testing.T) {
	calmly(t, func(t *testing.T, _ *server, c, breaks *searchClient) {
		first, next := c.ask(t, "first", 0), driver.Grant{}
		breaks.onBreak(func(r *sent) {
			r.apply()
			assert.ErrorIs(t, first.Hold.Release(t.Context(), 0), driver.ErrLost)
			next = c.ask(t, "next", 0)
		})
		broken, err := locktest.Break(t.Context(), breaks, "n")
		require.NoError(t, err)
		assert.Equal(t, first.Token, broken.Token)
		assert.Equal(t, first.Hold.(*hold).key, next.Hold.(*hold).key)
		_, err = next.Hold.Renew(t.Context())
		require.NoError(t, err)
		require.NoError(t, next.Hold.Release(t.Context(), 0))
	})
}

// The holder's lease ends before a Break arrives: its floor is broken as well.
func TestBreakBreaksTheFloorOfOneThatDied(t *testing.T) {
	calmly(t, func(t *testing.T, s *server, c, other *searchClient) {
		c.opts.StrictExpiry = true
		h := c.ask(t, "o", 0).Hold.(*hold)
		other.onBreak(func(*sent) { s.do(func() { s.endLease(h.l.id) }) })
		broken, err := locktest.Break(t.Context(), other, "n")
		require.NoError(t, err)
		assert.True(t, broken.Held)
		assert.Zero(t, s.floors())
	})
}

// A Break breaks nobody but the holder that its State tells of: not those who hold when it comes late, and not by
// a State of another cluster, or of before a restore, with higher revisions.
func TestBreakOfAnotherHolderBreaksNobody(t *testing.T) {
	calmly(t, func(t *testing.T, _ *server, c, _ *searchClient) {
		ctx := t.Context()
		acquire := func(name string, shared bool) *hold {
			req := asks("o", 0)
			req.Name, req.Shared = name, shared
			h, _ := c.acquire(t, req)
			return h
		}
		first := acquire("n", true)
		late := c.inspect(t, "n")
		require.NoError(t, first.Release(ctx, 0))
		next := acquire("n", true)
		require.NoError(t, c.Break(ctx, late))
		_, err := next.Renew(ctx)
		require.NoError(t, err, "it was late")

		alone := acquire("alone", false)
		for _, name := range []string{"n", "later"} { // one before, and one after
			if name == "later" {
				acquire(name, false)
			}
			other := c.inspect(t, name)
			other.Name = "alone"
			require.NoError(t, c.Break(ctx, other))
			_, err = alone.Renew(ctx)
			require.NoError(t, err, name)
		}
		require.NoError(t, c.Break(ctx, driver.State{Name: "alone", Held: true, Holder: "etcd 1-9000000000"}))
		_, err = alone.Renew(ctx)
		require.NoError(t, err, "it is no sharer")
		for _, other := range []string{"zookeeper 1-1", "etcd 1", late.Holder + " ", late.Holder + "0x", "etcd 0x1-1"} {
			require.ErrorIs(t, c.Break(ctx, driver.State{Name: "alone", Held: true, Holder: other}), driver.ErrInvalid, other)
		}
	})
}

// A key of the same name that was put later is not the one that is held.
func TestKeyThatIsPutAgainIsNotTheLock(t *testing.T) {
	calmly(t, func(t *testing.T, s *server, c, other *searchClient) {
		h := c.ask(t, "o", 0).Hold.(*hold)
		s.delete(h.key)
		again := other.ask(t, "again", 0).Hold.(*hold)
		s.do(func() { s.keys[h.key] = s.keys[again.key] })
		_, err := h.Renew(t.Context())
		require.ErrorIs(t, err, driver.ErrLost)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = h.Renew(ctx)
		require.ErrorIs(t, err, driver.ErrLost, "that is known, also to a renewal that is not answered")
	})
}

// Two renewals at one time: the one that is not answered does not say that the lock is there when the other has
// said that it is gone.
func TestRenewalBesideOneThatFindsItGone(t *testing.T) {
	calmly(t, func(t *testing.T, s *server, c, _ *searchClient) {
		var looks atomic.Int32
		h := c.ask(t, "o", 0).Hold.(*hold)
		time.Sleep(time.Second) // the session has been looked at by then
		c.onRequest(func(r *sent) (fate, error) {
			if looks.Add(1) > 1 {
				<-r.ctx.Done()
			}
			time.Sleep(100 * time.Millisecond)
			return r.send()
		})
		s.delete(h.key)
		var both sync.WaitGroup
		for range 2 {
			both.Go(func() {
				_, err := h.Renew(t.Context())
				assert.ErrorIs(t, err, driver.ErrLost)
			})
			time.Sleep(10 * time.Millisecond)
		}
		both.Wait()
		assert.EqualValues(t, 2, looks.Load())
	})
}

// Raising is repeated when its answer is lost, and by several at once: the highest counts.
func TestRaiseIsRepeated(t *testing.T) {
	calmly(t, func(t *testing.T, s *server, c, _ *searchClient) {
		const far = 1 << 50
		key := tokensKey(c.keys.queue("n"))
		var isLost atomic.Bool
		c.onRequest(func(r *sent) (fate, error) {
			req, ok := r.args.(*pb.TxnRequest)
			if ok && len(req.Success) == 1 && string(req.Success[0].GetRequestPut().GetKey()) == key &&
				isLost.CompareAndSwap(false, true) {
				r.apply()
			}
			return r.send()
		})
		g := c.ask(t, "o", 0)
		raise := g.Hold.(*hold).RaiseToken
		require.NoError(t, raise(t.Context(), g.Token), "every later one is greater anyway")
		assert.False(t, s.has(key))
		var at sync.WaitGroup
		for i := range 8 {
			at.Go(func() { assert.NoError(t, raise(t.Context(), far+1000*uint64(i))) })
		}
		at.Wait()
		require.NoError(t, raise(t.Context(), far), "it is raised further")
		require.NoError(t, g.Hold.Release(t.Context(), 0))
		assert.True(t, isLost.Load())
		assert.True(t, s.has(key), "it stays")
		next := c.ask(t, "next", 0)
		assert.Greater(t, next.Token, uint64(far+7000))
		assert.Less(t, next.Token, uint64(far+8000))
		require.NoError(t, next.Hold.Release(t.Context(), 0))
	})
}
