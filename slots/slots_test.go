package slots_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/locktest"
	"github.com/golockers/locker/internal/memlock"
	"github.com/golockers/locker/slots"
)

// shards has each name on a server of its own, one of which may be away, or not answer releases.
type shards struct {
	*memlock.Backend
	how sync.Map // by name: "away" or "mute"
}

func (s *shards) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	how, _ := s.how.Load(req.Name)
	if how == "away" {
		return driver.Grant{}, fmt.Errorf("shard is away: %w", locker.ErrUnavailable)
	}
	g, err := s.Backend.Acquire(ctx, req)
	if g.Hold != nil && how == "mute" {
		g.Hold = muteHold{g.Hold}
	}
	return g, err
}

type muteHold struct{ driver.Hold }

func (h muteHold) Undo(ctx context.Context) error { return h.Release(ctx, 0) }

func (muteHold) Release(ctx context.Context, _ time.Duration) error {
	<-ctx.Done()
	return ctx.Err()
}

// caller is a program with a client of its own, which is a Locker of somebody else: it locks other names than it is
// asked for.
type caller struct {
	*locker.Client
	ctx    context.Context
	leave  context.CancelFunc
	slot   *slots.Slot
	err    error
	answer atomic.Bool
}

func called(name string) string { return strings.ToUpper(name) + "!" }

func (c *caller) Lock(ctx context.Context, name string, opts ...locker.Option) (*locker.Lease, error) {
	return c.Client.Lock(ctx, called(name), opts...)
}

func (c *caller) TryLock(ctx context.Context, name string, opts ...locker.Option) (*locker.Lease, error) {
	return c.Client.TryLock(ctx, called(name), opts...)
}

// asks begins to ask for a slot in one of the two ways.
func (c *caller) asks(how func(context.Context, locker.Locker, string, int, ...locker.Option) (*slots.Slot, error),
	n string, opts []locker.Option) {
	c.answer.Store(false)
	go func() {
		of, _ := strconv.Atoi(n)
		c.slot, c.err = how(c.ctx, c, "gpu", of, opts...)
		c.answer.Store(true)
	}()
}

// has is what the caller has been told: the number of its slot, or why it has none.
func (c *caller) has(t *testing.T) string {
	switch {
	case !c.answer.Load():
		return "waits"
	case errors.Is(c.err, locker.ErrHeld) && strings.HasPrefix(c.err.Error(), `locker: lock "gpu": `):
		if strings.Contains(c.err.Error(), "others wait for a slot before") {
			return "at the door"
		}
		return "full"
	case errors.Is(c.err, locker.ErrHeld):
		assert.Regexp(t, `^locker: trylock "gpu": none of \d slots is free: the lock is held by another$`, c.err.Error())
		return "held"
	case errors.Is(c.err, locker.ErrUnavailable) && strings.HasPrefix(c.err.Error(), `locker: lock "gpu": `):
		assert.NotContains(t, c.err.Error(), "others wait")
		return "away"
	case c.err != nil:
		return c.err.Error()
	}
	return strconv.Itoa(c.slot.Number)
}

// In a history, "a locks 2: 0" is a program that asks for one of two slots and has number 0 at once, "a tries 2" does
// not wait, "kept" gives it a MinHold of an hour, and "a: 0" is what it has later. Nothing is left in the end.
func TestHistories(t *testing.T) {
	for _, history := range []string{
		// In order.
		"a locks 3: 0, b locks 3: 1, c locks 3: 2, d locks 3: waits, e locks 3: waits, f locks 3: waits, 0 has 1 waiter, " +
			"c unlocks, d: 2, e: waits, 1s, a unlocks, e: 0, f: waits, d unlocks, f: 2",
		// n changes. A high slot that is free is not for those who know of two, who are in nobody's way.
		"a locks 2: 0, b locks 2: 1, c locks 2: waits, d locks 4: 2, e locks 4: 3, f tries 4: held, " +
			"e unlocks, c: waits, b unlocks, c: 1",
		// A door that is not released holds up nobody who has a slot, and nobody who only tries.
		"door2 mute, a locks 2: 0, b tries 2: 1, c tries 2: held",
		// The one at the door leaves, is closed, or loses it.
		"a locks 1: 0, b locks 1: waits, c locks 1: waits, b leaves, a unlocks, c: 0",
		"a locks 1: 0, b locks 1: waits, c locks 1: waits, b closes, a unlocks, c: 0",
		"a locks 1: 0, b locks 1: waits, c locks 1: waits, door1 lost, a unlocks, b: 0, b unlocks, c: 0",
		// MaxWait bounds the whole call: at the door, and behind it.
		"a locks 2: 0, b locks 2: 1, c within 2: waits, 50s, d within 2: waits, 11s, c: full, d: waits, 50s, d: full, " +
			"b unlocks, e within 2: 1",
		"a locks 1: 0, b within 1: waits, c within 1: waits, 59s, a unlocks, b: 0, c: waits, 2s, c: full, d tries 1: held",
		"a locks 1: 0, b locks 1: waits, c within 1: waits, 1m, 1s, c: at the door, a unlocks, b: 0",
		// The door cannot be asked for.
		"door1 away, a locks 1: waits or away, 1m, a: away",
		// Two come free at once.
		"a locks 2: 0, b locks 2: 1, c locks 2: waits, 0 lost 1, c: 0 or 1, d tries 2: 0 or 1, e tries 2: held",
		// A worker's number is not given out again for the MinHold, although it dies at once.
		"a tries 2 kept: 0, a closes, b tries 2 kept: 1, b closes, c tries 2 kept: held, 59m, c tries 2 kept: held, 2m, " +
			"c tries 2 kept: 0",
		// One comes back that was out of reach for longer than OutageTimeout.
		"a tries 2: 0, b tries 2: 1, 0 away, c locks 2: waits, 1m, 0 back, a unlocks, 5s, c: 0",
	} {
		for _, timeout := range []time.Duration{0, -1} {
			t.Run(history, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { play(t, timeout, history) })
			})
		}
	}
}

func play(t *testing.T, timeout time.Duration, history string) {
	locks, callers := &shards{Backend: memlock.New(false)}, map[string]*caller{}
	defer func() {
		for _, c := range callers {
			c.leave()
			synctest.Wait()
			if c.slot != nil {
				_ = c.slot.Unlock(t.Context())
			}
			_ = c.Close() // which an unanswered release of a door keeps from success
		}
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		for left, err := range locks.List(t.Context(), "") {
			how, _ := locks.how.Load(left.Name)
			assert.True(t, err == nil && how == "mute", "%+v %v", left, err)
		}
	}()
	for step := range strings.SplitSeq(history, ", ") {
		what, want, asked := strings.Cut(step, ": ")
		word := append(strings.Fields(what), "")
		lock := called("gpu/" + word[0])
		if pause, err := time.ParseDuration(step); err == nil {
			time.Sleep(pause)
			continue
		}
		c := callers[word[0]]
		if c == nil && asked {
			c = &caller{Client: locktest.Must(locker.New(locks, &locker.Options{OutageTimeout: timeout}))}
			c.ctx, c.leave = context.WithCancel(t.Context())
			callers[word[0]] = c
		}
		var opts []locker.Option
		if strings.HasSuffix(what, "kept") {
			opts = append(opts, locker.MinHold(time.Hour))
		}
		switch word[1] {
		case "within": // a minute
			c.asks(slots.Lock, word[2], []locker.Option{locker.MaxWait(time.Minute)})
		case "locks":
			c.asks(slots.Lock, word[2], opts)
		case "tries":
			c.asks(slots.TryLock, word[2], opts)
		case "unlocks":
			assert.NoError(t, c.slot.Unlock(t.Context()))
		case "leaves":
			c.leave()
		case "closes":
			assert.NoError(t, c.Close())
		case "lost":
			assert.True(t, locks.Lose(lock))
			locks.Lose(called("gpu/" + word[2])) // at the same moment
		case "away", "mute", "back":
			locks.how.Store(lock, word[1])
		case "has":
			st, err := locks.Inspect(t.Context(), lock)
			assert.NoError(t, err)
			assert.Equal(t, word[2], strconv.Itoa(st.Waiters), "only the one at the door asks for slots")
		}
		synctest.Wait()
		if asked {
			require.Contains(t, want, c.has(t), step)
		}
	}
}

func TestAtMostN(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := memlock.New(false)
		var inside [3]atomic.Bool
		var most atomic.Int32 // turns in which all slots were in use
		var callers sync.WaitGroup
		for range 12 {
			c := locktest.Client(t, locks, nil)
			callers.Go(func() {
				for range 20 {
					assert.NoError(t, slots.Do(t.Context(), c, "gpu", len(inside), func(ctx context.Context) error {
						slot, _ := slots.FromContext(ctx, "gpu")
						assert.False(t, inside[slot.Number].Swap(true), "two have slot %d", slot.Number)
						if inside[0].Load() && inside[1].Load() && inside[2].Load() {
							most.Add(1)
						}
						time.Sleep(time.Millisecond)
						inside[slot.Number].Store(false)
						return nil
					}))
				}
			})
		}
		callers.Wait()
		assert.Positive(t, most.Load())
	})
}

func TestALostSlotEndsTheWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := memlock.New(false)
		time.AfterFunc(time.Second, func() { locks.Lose("gpu/0") })
		work := func(ctx context.Context) error {
			slot, held := slots.FromContext(ctx, "gpu")
			assert.True(t, held)
			<-ctx.Done()
			_, held = slots.FromContext(ctx, "gpu")
			assert.False(t, held)
			assert.Equal(t, 0, slot.Number)
			return nil
		}
		require.ErrorIs(t, slots.TryDo(t.Context(), locktest.Client(t, locks, nil), "gpu", 2, work), locker.ErrLost)
	})
}

// crowd counts requests that are under way.
type crowd struct {
	*memlock.Backend
	now, most atomic.Int64
}

func (b *crowd) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	b.most.Store(max(b.most.Load(), b.now.Add(1)))
	defer b.now.Add(-1)
	return b.Backend.Acquire(ctx, req)
}

// One that waits for many slots has few requests under way, and notices when one of them is free, or none can be
// asked for.
func TestManySlots(t *testing.T) {
	const many = 100
	for slot, within := range map[int]time.Duration{3: 0, 15: 2 * time.Second, many - 1: 2 * time.Second, -1: time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			b := &crowd{Backend: memlock.New(false)}
			holder, c := locktest.Client(t, b, nil), locktest.Client(t, b, nil)
			var held []*slots.Slot
			for range many {
				s, err := slots.TryLock(t.Context(), holder, "gpu", many)
				require.NoError(t, err)
				held = append(held, s)
			}
			freed := make(chan time.Time, 1)
			time.AfterFunc(time.Minute, func() {
				if freed <- time.Now(); slot < 0 {
					b.Fail(locker.ErrUnavailable)
				} else {
					_ = held[slot].Unlock(t.Context())
				}
			})
			got, err := slots.Lock(t.Context(), c, "gpu", many)
			if slot < 0 {
				require.ErrorIs(t, err, locker.ErrUnavailable)
				b.Fail(nil)
			} else {
				require.NoError(t, err)
				assert.Equal(t, slot, got.Number)
			}
			assert.LessOrEqual(t, time.Since(<-freed), within, slot)
			assert.LessOrEqual(t, b.most.Load(), int64(16))
		})
	}
}

func TestASlotOfTheCallersOwnIsHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memlock.New(false)
		c := locktest.Client(t, b, nil)
		require.NoError(t, slots.Do(t.Context(), c, "gpu", 2, func(ctx context.Context) error {
			other, err := slots.TryLock(ctx, locktest.Client(t, b, nil), "gpu", 2)
			require.NoError(t, err)
			require.Equal(t, 1, other.Number)
			_, err = slots.TryLock(ctx, c, "gpu", 2)
			require.ErrorIs(t, err, locker.ErrHeld)
			time.AfterFunc(time.Minute, func() { _ = other.Unlock(t.Context()) })
			return slots.Do(ctx, c, "gpu", 2, func(ctx context.Context) error {
				second, held := slots.FromContext(ctx, "gpu")
				assert.True(t, held)
				assert.Equal(t, 1, second.Number)
				waits, cancel := context.WithCancel(t.Context())
				defer cancel()
				go func() { _, _ = slots.Lock(waits, c, "gpu", 2) }() // at the door, for what ctx holds
				synctest.Wait()
				_, err := slots.TryLock(ctx, c, "gpu", 2)
				require.ErrorContains(t, err, "holds all of the 2 slots itself")
				_, err = slots.Lock(ctx, c, "gpu", 2)
				require.ErrorIs(t, err, locker.ErrInvalid)
				_, err = slots.LockAny(ctx, c, []string{"gpu/1", "gpu/0"})
				require.ErrorIs(t, err, locker.ErrInvalid)
				return nil
			})
		}))
	})
}

func TestNames(t *testing.T) {
	c := locktest.Client(t, memlock.New(false), nil)
	longest := strings.Repeat("x", slots.MaxNameLen)
	s, err := slots.Lock(t.Context(), c, longest, slots.MaxSlots)
	require.NoError(t, err)
	assert.Equal(t, longest+"/0", s.Name())
	over, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = slots.Lock(over, c, "gpu", 2)
	require.ErrorIs(t, err, context.Canceled)

	_, err = slots.Lock(t.Context(), c, "gpu", 2, locker.MinHold(time.Hour))
	require.ErrorIs(t, err, locker.ErrInvalid)
	_, err = slots.TryLock(t.Context(), nil, "gpu", 2)
	require.ErrorIs(t, err, locker.ErrInvalid)
	_, err = slots.LockAny(t.Context(), nil, []string{"gpu"})
	require.ErrorIs(t, err, locker.ErrInvalid)
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
		"no wait":        {"gpu", 2, []locker.Option{locker.MaxWait(-1)}, "below 0"},
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
