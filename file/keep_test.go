//go:build linux || darwin

package file_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/locktest"
)

// A lock that is kept is nobody's, keeps out who wants it alone, and ends when that is over: its
// MinHold would last for far longer, and what comes later does not make it longer.
func TestKeptLockEnds(t *testing.T) {
	const keep = 400 * time.Millisecond
	for _, shared := range []bool{false, true} {
		for _, stays := range []bool{false, true} { // another sharer
			if stays && !shared {
				continue
			}
			t.Run(fmt.Sprintf("shared=%v, beside another=%v", shared, stays), func(t *testing.T) {
				t.Parallel()
				dir := t.TempDir()
				b, other := newBackend(t, dir), newBackend(t, dir)
				g := must(locktest.Ask(t.Context(), b, request(shared, time.Hour)))
				var beside driver.Hold
				if stays {
					beside = must(locktest.Ask(t.Context(), other, request(true, 0))).Hold
				}
				began := time.Now()
				require.NoError(t, g.Hold.Release(t.Context(), keep))
				_, err := g.Hold.Renew(t.Context())
				require.ErrorIs(t, err, driver.ErrLost)
				require.ErrorIs(t, g.Hold.(driver.TokenRaiser).RaiseToken(t.Context(), 1<<62), driver.ErrLost)
				// What follows holds while it is kept, which is no longer so on a machine that has stood still.
				if err := g.Hold.Release(t.Context(), time.Hour); time.Since(began) < keep {
					require.NoError(t, err, "it is kept already")
				}
				if stays {
					require.NoError(t, beside.Release(t.Context(), 0))
				}
				if st := must(b.Inspect(t.Context(), "n")); time.Since(began) < keep {
					assert.True(t, st.Held)
					assert.Equal(t, g.Token, st.Token)
					assert.Greater(t, st.Remaining, time.Duration(0))
					assert.LessOrEqual(t, st.Remaining, keep)
					assert.WithinDuration(t, began.Add(keep), st.KeptUntil, time.Second)
				}
				late, err := locktest.Ask(t.Context(), other, request(false, 0))
				if time.Since(began) < keep {
					require.ErrorIs(t, err, driver.ErrHeld)
				} else if err == nil {
					require.NoError(t, late.Hold.Release(t.Context(), 0))
				}
				next := must(locktest.Ask(t.Context(), other, waiting(false)))
				took := time.Since(began)
				assert.GreaterOrEqual(t, took, keep)
				assert.Less(t, took, keep*101/100+b.Guarantees().MinHoldSlack+5*time.Second, "and some for a busy machine")
				require.ErrorIs(t, g.Hold.Release(t.Context(), time.Hour), driver.ErrLost)
				_, err = next.Hold.Renew(t.Context())
				require.NoError(t, err)
				assert.Zero(t, must(b.Inspect(t.Context(), "n")).KeptUntil)
			})
		}
	}
}

// What is kept is removed by all that removes a lock, and nothing brings it back.
func TestKeptLockIsRemoved(t *testing.T) {
	b := newBackend(t, t.TempDir())
	for _, shared := range []bool{false, true} {
		for how, remove := range map[string]func(driver.Hold) error{
			"Release": func(h driver.Hold) error { return h.Release(t.Context(), 0) },
			"Undo":    func(h driver.Hold) error { return h.Undo(t.Context()) },
			"Break": func(driver.Hold) error {
				_, err := locktest.Break(t.Context(), b, "n")
				return err
			},
		} {
			g := must(locktest.Ask(t.Context(), b, request(shared, time.Hour)))
			require.NoError(t, g.Hold.Release(t.Context(), time.Minute))
			_, err := locktest.Ask(t.Context(), b, request(false, 0))
			require.ErrorIs(t, err, driver.ErrHeld, how)
			require.NoError(t, remove(g.Hold), how)
			require.ErrorIs(t, g.Hold.Release(t.Context(), time.Minute), driver.ErrLost, how)
			require.NoError(t, g.Hold.Undo(t.Context()), how)
			next := must(locktest.Ask(t.Context(), b, request(false, 0)))
			assert.Greater(t, next.Token, g.Token)
			require.NoError(t, next.Hold.Release(t.Context(), 0))
		}
	}
}

// A sharer that unlocks beside others while a writer waits cannot write, and need not: the file says
// when its MinHold ends. What would be shorter is tried again.
func TestSharerIsKeptWhileAWriterHasTheTurn(t *testing.T) {
	t.Cleanup(func() { waitUntilBlocked(t, 0) })
	dir := t.TempDir()
	b, other := newBackend(t, dir), newBackend(t, dir)
	const minHold = 2 * time.Second
	beside := must(locktest.Ask(t.Context(), other, request(true, 0)))
	began := time.Now()
	long := must(locktest.Ask(t.Context(), b, request(true, minHold)))
	type grant struct {
		hold driver.Hold
		err  error
	}
	granted := make(chan grant, 1)
	go func() {
		g, err := locktest.Ask(t.Context(), other, waiting(false))
		granted <- grant{g.Hold, err}
	}()
	waitUntilTurnIsTaken(t, dir)
	require.NoError(t, long.Hold.Release(t.Context(), minHold-time.Since(began)))
	require.NoError(t, beside.Hold.Release(t.Context(), 0))
	g := <-granted
	require.NoError(t, g.err)
	assert.GreaterOrEqual(t, time.Since(began), minHold)
	require.NoError(t, g.hold.Release(t.Context(), 0))

	beside = must(locktest.Ask(t.Context(), other, request(true, 0)))
	long = must(locktest.Ask(t.Context(), b, request(true, time.Hour)))
	go func() {
		g, err := locktest.Ask(t.Context(), other, waiting(false))
		granted <- grant{g.Hold, err}
	}()
	waitUntilTurnIsTaken(t, dir)
	require.ErrorIs(t, long.Hold.Release(t.Context(), minHold), driver.ErrUnavailable)
	require.NoError(t, beside.Hold.Release(t.Context(), 0))
	require.Eventually(t, func() bool { return long.Hold.Release(t.Context(), minHold) == nil }, patience, time.Millisecond)
	g = <-granted
	require.NoError(t, g.err)
	require.NoError(t, g.hold.Release(t.Context(), 0))
}

// Of several sharers with a MinHold the file has the longest: one that unlocks leaves it, and none is
// shorter than asked.
func TestKeptSharersOfSeveral(t *testing.T) {
	b := newBackend(t, t.TempDir())
	short := must(locktest.Ask(t.Context(), b, request(true, time.Minute)))
	long := must(locktest.Ask(t.Context(), b, request(true, time.Hour)))
	require.NoError(t, short.Hold.Release(t.Context(), time.Second))
	assert.InDelta(t, time.Hour, must(b.Inspect(t.Context(), "n")).Remaining, float64(time.Minute))
	require.NoError(t, long.Hold.Release(t.Context(), time.Hour))
	assert.InDelta(t, time.Hour, must(b.Inspect(t.Context(), "n")).Remaining, float64(time.Minute))
}
