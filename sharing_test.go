package locker_test

import (
	"context"
	"errors"
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
	"github.com/golockers/locker/memory"
)

func TestSharing(t *testing.T) {
	play(t, map[string]string{
		"a run of sharers gets in together, and a writer before those behind it": `
			service queue; others hold job 1h; r1 locks shared: waits; r2 locks shared: waits
			r3 locks shared: waits
			w locks: waits; r4 locks shared: waits; count acquire 1; others unlock job; r1: ok; r2: ok
			r3: ok; w: waits
			t tries: held; 1s; r4: waits; r1 unlocks; r2 unlocks; r3 unlocks; w: ok; r4: waits; w unlocks
			r4: ok`,
		"also without a queue": `
			others hold job 1s; r1 locks shared: waits; r2 locks shared: waits; w locks: waits
			r3 locks shared: waits
			r1: ok in 1s-2s; r2: ok in 1s-2s; r3: waits; r1 unlocks; r2 unlocks; w: ok; r3: waits; w unlocks
			r3: ok`,
		"one that is refused beside the first waits for it, and asks again when it is the first itself": `
			service queue; r locks shared; acquire: hangs then 1s forever then ok; a locks shared: waits
			b locks shared: waits; 500ms; a leaves; b: ok in 1s`,
		"who does not wait comes at once, and asks beside those that do": `
			r1 tries shared; r2 tries shared; r3 tries shared; t tries: held; count Held 3 acquire 3
			acquire: 1s; a tries shared on b: waits; b tries shared on b: waits; count acquire 5; a: ok in 1s; b: ok in 1s`,
		"who waits lets the first ask alone, and then more ask at once": `
			acquire: 1s; a locks shared: waits; b locks shared: waits; c locks shared: waits; w locks: waits
			d locks shared: waits; count acquire 1; b: ok in 2s; c: ok in 2s; a unlocks; b unlocks; c unlocks; w: waits
			w: ok in 3s; d: waits; w unlocks; d: ok in 4s`,
		"one for whom there is no room while another is taken back asks soon, as nothing tells when there is": `
			service notifies; r locks shared; release: down then ok; r unlocks: unavailable
			acquire: refused then refused then refused then ok; a locks shared: ok in 0s-2s`,
		"who has no right to the lock is told so, also beside one that has none to let it go": `
			service session; r locks shared; release: refused; acquire: refused; r unlocks: refused; 1s
			t tries shared: refused; a locks shared: refused`,
		// It would wait for itself, and two sharers that want to write for each other.
		"a lock is not asked for with a context that has it": `
			r locks shared; w locks within r: invalid "unlock it first"; r raises: unsupported
			s locks shared within r: invalid; w locks within r on x
			v locks on x within w: invalid "would wait for itself" in 0s; v tries on x within w: invalid held in 0s`,
		"a writer's note is renewed while it waits, and goes with it": `
			r locks shared; acquire: note; w locks until 1m: held deadline; count acquire 200-1000 leave 1`,
		"a grant removes it": `
			r locks shared; acquire: note then note then ok; r unlocks; w locks; count leave 0 acquire 4`,
		"it is still there when another writer holds the lock": `
			service deaf; acquire: note then forever; w locks until 1s: held deadline; count leave 1`,
		"it goes with a writer that leaves before the answer": `
			service deaf; acquire: 2s note; w locks until 1s: held? unavailable? deadline; count leave 0; 2s
			count leave 1`,
		"each writer has its own": `
			acquire: note; a locks until 1s: waits; b locks until 1m: waits; 2s; count leave 1
			b: held deadline; count leave 2`,
		"and the client one place in a line of the service, which the last that waits leaves": `
			acquire: place; a locks until 1s: waits; b locks until 1m: waits; 2s; a: held deadline
			count leave 0
			b: held deadline; count leave 1`,
		"also of those that leave together": `
			acquire: place; a locks until 1s: waits; b locks until 1s: waits; c locks until 1s: waits; 2s
			count leave 1`,
		"and stays with those that wait when an answer comes that nobody waits for any more": `
			service deaf; acquire: 2s place then place; a locks until 1s: held? unavailable? deadline
			b locks until 10s: waits; 2s; count leave 0; b: held deadline; count leave 1`,
		"a grant removes that, too": `
			acquire: place then ok; a locks: waits; b locks until 1s: held deadline; a: ok; a unlocks; 1s
			count leave 0`,
	})
}

func TestAnOutageBesideASharer(t *testing.T) {
	play(t, map[string]string{
		"is not told as held to sharers (R17)": `
			r locks shared; down; a locks shared until 5s: waits; b locks shared until 5s: waits
			c tries shared: unavailable
			t tries: held; a: unavailable deadline
			b: unavailable deadline`,
		"is forgotten when it is over": `
			service queue; r locks shared; acquire: down then hangs; a tries shared: unavailable
			w locks until 5s: waits
			v tries shared until 6s: unavailable? deadline in 6s`,
		"ends the wait of one that asks beside the first": `
			service queue outage=-1s; r locks shared; acquire: queues down; a locks shared until 5s: waits
			b locks shared: unavailable in 0s; a: unavailable? deadline`,
	})
}

// At a distance of 20 ms many get in within a second, and the more of one client than a
// service has room for wait for each other instead of being refused, also while it still counts
// some that have left; one of another client is refused.
func TestManyReadersOfOneClient(t *testing.T) {
	for what, fails := range map[string]bool{"a release takes as long": false, "releases are not answered": true} {
		t.Run(what, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { manyReaders(t, fails) }) })
	}
}

func manyReaders(t *testing.T, fails bool) {
	b := &distant{Backend: memory.New(), fails: fails}
	c := locktest.Must(locker.New(b, nil))
	defer c.Close()
	const many = locker.MaxSharers + 1000
	var got atomic.Int64
	var all sync.WaitGroup
	began := time.Now()
	for i := range many {
		all.Go(func() {
			if i >= 1000 {
				time.Sleep(time.Second)
			}
			l, err := c.Lock(t.Context(), "job", locker.Shared())
			if assert.NoError(t, err) {
				got.Add(1)
				time.Sleep(time.Minute)
				err = l.Unlock(t.Context())
				assert.Equal(t, fails, errors.Is(err, locker.ErrUnavailable), "%v", err)
			}
		})
	}
	for got.Load() < 1000 {
		time.Sleep(time.Millisecond)
	}
	assert.Less(t, time.Since(began), time.Second)
	time.Sleep(10 * time.Second)
	assert.EqualValues(t, locker.MaxSharers, got.Load())
	_, err := c.TryLock(t.Context(), "job", locker.Shared())
	require.ErrorIs(t, err, locker.ErrHeld)
	another := locktest.Must(locker.New(b, nil))
	for range 2 { // what is left of one does not keep the other waiting
		all.Go(func() {
			_, err := another.Lock(t.Context(), "job", locker.Shared())
			assert.ErrorIs(t, err, locker.ErrRefused)
			assert.ErrorContains(t, err, "4096 share")
		})
	}
	all.Wait()
	assert.LessOrEqual(t, b.most.Load(), int64(65), "at once, and whoever is at the head")
	assert.Zero(t, c.Stats().Failed)
	assert.Zero(t, c.Stats().Held+c.Stats().Waiting)
}

// distant is a service that takes 20 ms for an answer.
type distant struct {
	*memory.Backend
	fails      bool // releases are not answered, and only the take-back is
	asks, most atomic.Int64
}

func (b *distant) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	n := b.asks.Add(1)
	defer b.asks.Add(-1)
	for most := b.most.Load(); n > most && !b.most.CompareAndSwap(most, n); {
		most = b.most.Load()
	}
	time.Sleep(20 * time.Millisecond)
	g, err := b.Backend.Acquire(ctx, req)
	if err == nil {
		g.Hold = &distantHold{Hold: g.Hold, fails: b.fails}
	} else if errors.Is(err, locker.ErrRefused) {
		g.Hold = leftover{} // as a place in a queue
	}
	return g, err
}

type leftover struct{ driver.Hold }

func (leftover) Undo(context.Context) error { time.Sleep(2 * time.Second); return nil }

type distantHold struct {
	driver.Hold
	fails bool
}

func (h *distantHold) Release(ctx context.Context, keep time.Duration) error {
	time.Sleep(20 * time.Millisecond)
	if h.fails {
		return locker.ErrUnavailable
	}
	return h.Hold.Release(ctx, keep)
}
