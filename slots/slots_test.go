package slots_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/internal/locktest"
	"github.com/golockers/locker/memory"
	"github.com/golockers/locker/slots"
)

// patient is a context for waits that end, unless a lock was left behind.
func patient(t *testing.T) context.Context { return locktest.Within(t, 24*time.Hour) }

func lock(t *testing.T, l locker.Locker, name string, n int) *slots.Slot {
	t.Helper()
	s, err := slots.Lock(patient(t), l, name, n)
	require.NoError(t, err)
	return s
}

// held has the locks that are held or waited for.
func held(t *testing.T, c *locker.Client) (names []string) {
	t.Helper()
	synctest.Wait()
	for l, err := range c.List(t.Context(), "") {
		require.NoError(t, err)
		names = append(names, l.Name)
	}
	return names
}

// crowd has callers take slots again and again, and returns the most that were inside
// at once.
func crowd(t *testing.T, ctx context.Context, n, turns int, work time.Duration,
	clients ...locker.Locker) int {
	var now, most atomic.Int32
	holders := make([]atomic.Int32, n)
	var callers sync.WaitGroup
	for _, c := range clients {
		callers.Go(func() {
			for range turns {
				assert.NoError(t, slots.Do(ctx, c, "gpu", n, func(_ context.Context, slot *slots.Slot) error {
					assert.EqualValues(t, 1, holders[slot.Number].Add(1), "slot %d", slot.Number)
					for m, i := most.Load(), now.Add(1); i > m && !most.CompareAndSwap(m, i); m = most.Load() {
					}
					time.Sleep(work)
					now.Add(-1)
					holders[slot.Number].Add(-1)
					return nil
				}))
			}
		})
	}
	callers.Wait()
	return int(most.Load())
}

func TestAtMostN(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := memory.New()
		var clients []locker.Locker
		for range 12 {
			clients = append(clients, locktest.Client(t, locks, nil))
		}
		assert.Equal(t, 3, crowd(t, patient(t), 3, 20, time.Millisecond, clients...))
		assert.Empty(t, held(t, locktest.Client(t, locks, nil)))
	})
}

func TestWaitersAreServedInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := memory.New()
		const n = 3
		var first []*slots.Slot
		for i := range n {
			first = append(first, lock(t, locktest.Client(t, locks, nil), "gpu", n))
			assert.Equal(t, i, first[i].Number, "the lowest that is free")
		}
		var mu sync.Mutex
		var order []int
		var waiters sync.WaitGroup
		for i := range 10 {
			c := locktest.Client(t, locks, nil)
			waiters.Go(func() {
				assert.NoError(t, slots.Do(patient(t), c, "gpu", n, func(context.Context, *slots.Slot) error {
					mu.Lock()
					order = append(order, i)
					mu.Unlock()
					time.Sleep(time.Second)
					return nil
				}))
			})
			synctest.Wait()
		}
		st, err := locktest.Client(t, locks, nil).Inspect(t.Context(), "gpu/0")
		require.NoError(t, err)
		assert.Equal(t, 1, st.Waiters, "only the one at the door asks for slots")
		for i := range first {
			// Not in the order of their numbers, and each some time after the other.
			time.Sleep(300 * time.Millisecond)
			assert.NoError(t, first[(i+2)%n].Unlock(t.Context()))
		}
		waiters.Wait()
		assert.Equal(t, []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, order)
		assert.Empty(t, held(t, locktest.Client(t, locks, nil)))
	})
}

// n is changed in a running fleet, up and down, while callers wait.
func TestNChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := memory.New()
		two := []*slots.Slot{lock(t, locktest.Client(t, locks, nil), "gpu", 2), lock(t, locktest.Client(t, locks, nil), "gpu", 2)}
		late := make(chan *slots.Slot)
		waits := locktest.Client(t, locks, nil)
		go func() {
			s, err := slots.Lock(patient(t), waits, "gpu", 2)
			assert.NoError(t, err)
			late <- s
		}()
		synctest.Wait()
		four := []*slots.Slot{lock(t, locktest.Client(t, locks, nil), "gpu", 4), lock(t, locktest.Client(t, locks, nil), "gpu", 4)}
		assert.Equal(t, []int{2, 3}, []int{four[0].Number, four[1].Number},
			"one who wants fewer is in nobody's way")
		_, err := slots.TryLock(t.Context(), waits, "gpu", 4)
		require.ErrorIs(t, err, locker.ErrHeld)
		require.EqualError(t, err, `locker: trylock "gpu": none of 4 slots is free: the lock is held by another`)

		require.NoError(t, four[1].Unlock(t.Context()))
		synctest.Wait()
		select {
		case <-late:
			t.Fatal("a third of two")
		default: // a high slot is free, and is not for those who know of two
		}
		require.NoError(t, two[1].Unlock(t.Context()))
		assert.Equal(t, 1, (<-late).Number)
	})
}

func TestTryLockStandsBehindNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := memory.New()
		// Somebody stands at the door for a moment while all slots are free.
		_, err := locktest.Client(t, locks, nil).Lock(t.Context(), "gpu/door2")
		require.NoError(t, err)
		s, err := slots.TryLock(t.Context(), locktest.Client(t, locks, nil), "gpu", 2)
		require.NoError(t, err)
		assert.Equal(t, 0, s.Number)
		assert.Equal(t, "gpu/0", s.Name())
	})
}

// A worker's ID: every worker has one of its own, a number is not given out again for
// the MinHold, and no second one stays behind.
func TestNumbersOfWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := memory.New()
		began := time.Now()
		id := func() (int, error) {
			c := locker.New(locks, nil)
			defer func() { assert.NoError(t, c.Close()) }() // the worker dies at once
			s, err := slots.TryLock(t.Context(), c, "ids", 8, locker.MinHold(time.Hour))
			if err != nil {
				return -1, err
			}
			return s.Number, nil
		}
		var all sync.Map
		var workers sync.WaitGroup
		for range 8 {
			workers.Go(func() {
				n, err := id()
				assert.NoError(t, err)
				_, twice := all.LoadOrStore(n, true)
				assert.False(t, twice, n)
			})
		}
		workers.Wait()
		_, err := id()
		require.ErrorIs(t, err, locker.ErrHeld)
		time.Sleep(time.Until(began.Add(time.Hour + time.Minute)))
		n, err := id()
		require.NoError(t, err)
		assert.Zero(t, n)

		_, err = slots.Lock(t.Context(), locktest.Client(t, locks, nil), "ids", 8, locker.MinHold(time.Hour))
		require.ErrorIs(t, err, locker.ErrInvalid)
		assert.Equal(t, []string{"ids/0"}, held(t, locktest.Client(t, locks, nil)), "and nothing was locked for it")
	})
}

// The one at the door dies, leaves, or loses the door: the next one gets in.
func TestTheDoor(t *testing.T) {
	for name, leave := range map[string]func(locks *memory.Backend, cancel func(), c *locker.Client){
		"leaves":         func(_ *memory.Backend, cancel func(), _ *locker.Client) { cancel() },
		"is closed":      func(_ *memory.Backend, _ func(), c *locker.Client) { _ = c.Close() },
		"loses the door": func(locks *memory.Backend, _ func(), _ *locker.Client) { locks.Delete("gpu/door1") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				locks := memory.New()
				one := lock(t, locktest.Client(t, locks, nil), "gpu", 1)
				ctx, cancel := context.WithCancel(patient(t))
				defer cancel()
				var waiters sync.WaitGroup
				first := locktest.Client(t, locks, nil)
				waiters.Go(func() {
					if s, err := slots.Lock(ctx, first, "gpu", 1); err == nil {
						assert.NoError(t, s.Unlock(t.Context()))
					}
				})
				synctest.Wait()
				second := locktest.Client(t, locks, nil)
				waiters.Go(func() { assert.NoError(t, lock(t, second, "gpu", 1).Unlock(t.Context())) })
				synctest.Wait()
				leave(locks, cancel, first)
				synctest.Wait()
				require.NoError(t, one.Unlock(t.Context()))
				waiters.Wait()
				assert.Empty(t, held(t, locktest.Client(t, locks, nil)))
			})
		})
	}
}

// slowDoor is a service that does not answer releases of doors.
type slowDoor struct{ *memory.Backend }

type slowHold struct{ locker.Hold }

func (b slowDoor) Acquire(ctx context.Context, req locker.Request) (locker.Grant, error) {
	g, err := b.Backend.Acquire(ctx, req)
	if g.Hold != nil && strings.Contains(req.Name, "door") {
		g.Hold = slowHold{g.Hold}
	}
	return g, err
}

func (h slowHold) Undo(ctx context.Context) error { return h.Release(ctx) }

func (slowHold) Release(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

func TestTheDoorHoldsUpNobodyWhoHasASlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := locker.New(slowDoor{memory.New()}, nil)
		began := time.Now()
		assert.Equal(t, 0, lock(t, c, "gpu", 2).Number)
		assert.Zero(t, time.Since(began))
		require.ErrorIs(t, c.Close(), locker.ErrUnavailable)
		time.Sleep(time.Minute) // until the last request for the door has ended
	})
}

func TestALostSlotEndsTheWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := memory.New()
		c := locktest.Client(t, locks, nil)
		time.AfterFunc(time.Second, func() { locks.Delete("gpu/0") })
		err := slots.TryDo(t.Context(), c, "gpu", 2, func(ctx context.Context, _ *slots.Slot) error {
			require.ErrorIs(t, slots.TryDo(ctx, c, "gpu", 1, nil), locker.ErrHeld)
			<-ctx.Done()
			return nil
		})
		require.ErrorIs(t, err, locker.ErrLost)
		assert.Empty(t, held(t, c))
	})
}

// renamed is a Locker of somebody else, that locks other names than it is asked for.
type renamed struct{ locker.Locker }

func (r renamed) Lock(ctx context.Context, name string, opts ...locker.Option) (*locker.Lease, error) {
	return r.Locker.Lock(ctx, strings.ToUpper(name)+"!", opts...)
}

func (r renamed) TryLock(ctx context.Context, name string, opts ...locker.Option) (*locker.Lease, error) {
	return r.Locker.TryLock(ctx, strings.ToUpper(name)+"!", opts...)
}

func TestALockerOfSomebodyElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := renamed{locktest.Client(t, memory.New(), nil)}
		assert.Equal(t, 0, lock(t, l, "gpu", 2).Number)
		s, err := slots.TryLock(t.Context(), l, "gpu", 2)
		require.NoError(t, err)
		assert.Equal(t, 1, s.Number)
		time.AfterFunc(time.Second, func() { _ = s.Unlock(context.Background()) })
		assert.Equal(t, 1, lock(t, l, "gpu", 2).Number)
	})
}

func TestNames(t *testing.T) {
	c := locktest.Client(t, memory.New(), nil)
	longest := strings.Repeat("x", slots.MaxNameLen)
	s, err := slots.Lock(t.Context(), c, longest, slots.MaxSlots)
	require.NoError(t, err)
	assert.Equal(t, longest+"/0", s.Name())
	over, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = slots.Lock(over, c, "gpu", 2)
	require.ErrorIs(t, err, context.Canceled)

	before := c.Stats().Attempts
	for what, wrong := range map[string]struct {
		name string
		n    int
		opts []locker.Option
		says string
	}{
		"no slots":       {"gpu", 0, nil, "give 1 to 1000"},
		"too many slots": {"gpu", slots.MaxSlots + 1, nil, "give 1 to 1000"},
		"no name":        {"", 2, nil, "empty"},
		"a long name":    {longest + "x", 2, nil, "limit for slots is 503"},
		"no text":        {"\xff", 2, nil, "UTF-8"},
		"sharers":        {"gpu", 1, []locker.Option{locker.Shared(), locker.MinHold(time.Hour)}, "one holder"},
	} {
		_, err := slots.Lock(t.Context(), c, wrong.name, wrong.n, wrong.opts...)
		require.ErrorIs(t, err, locker.ErrInvalid, what)
		require.ErrorContains(t, err, wrong.says, what)
		_, err = slots.TryLock(t.Context(), c, wrong.name, wrong.n, wrong.opts...)
		require.ErrorIs(t, err, locker.ErrInvalid, what)
	}
	assert.Equal(t, before, c.Stats().Attempts, "the service is not asked")
}

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
			c, other := locktest.Client(t, s, &locker.Options{Patience: patience}), locktest.Client(t, s.Backend, nil)
			held, theirs := locktest.Lock(t, other, "gpu/1"), locktest.Lock(t, other, "gpu/0")
			ctx, name := patient(t), "/0"
			s.away.Store(&name)
			time.AfterFunc(time.Minute, func() { s.away.Store(nil); _ = theirs.Unlock(ctx) })
			began := time.Now()
			slot, err := slots.Lock(ctx, c, "gpu", 2)
			require.NoError(t, err)
			assert.Equal(t, 0, slot.Number)
			assert.Less(t, time.Since(began), time.Minute+5*time.Second)
			require.NoError(t, slot.Unlock(ctx))
			require.NoError(t, held.Unlock(ctx))
		})
	}
}
