package locker

import (
	"context"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The table of ending, as it is drawn.
func TestWhenALockMayGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ttl, minHold = 10 * time.Second, time.Minute
		now := time.Now()
		kept := minHold + drift(minHold)
		for why, want := range map[ending]struct{ plain, kept time.Duration }{
			stopped:    {0, kept},
			unreleased: {firstTakeBackDelay, kept},
			lost:       {ttl, kept},
			unused:     {0, 0},
			unknown:    {0, 0},
		} {
			l := &Lease{start: now, expiry: now.Add(ttl), settings: settings{ttl: ttl}}
			assert.Equal(t, want.plain, l.freeAt(why, now).Sub(now), "%d", why)
			l.settings.minHold = minHold
			assert.Equal(t, want.kept, l.freeAt(why, now).Sub(now), "%d under MinHold", why)
			late := now.Add(time.Hour)
			assert.GreaterOrEqual(t, time.Second, l.freeAt(why, late).Sub(late), "%d, long after", why)
		}
	})
}

// Every way through a line, as place draws it: a call that has left is nobody's head, and
// is counted once.
func TestPlacesInALine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ls lines
		ctx, cancel := context.WithCancel(t.Context())
		enter := func(ctx context.Context) (*call, chan error) {
			cl, end := &call{wait: true, began: time.Now(), cancel: func(error) {}}, make(chan error, 1)
			cl.settings.patience = time.Minute
			go func() { end <- ls.enter(ctx, "job", cl) }()
			synctest.Wait()
			return cl, end
		}
		check := func(waiting, inLine int, places map[*call]place) {
			t.Helper()
			synctest.Wait()
			for cl, want := range places {
				assert.Equal(t, want, cl.place)
			}
			_, n := ls.count()
			assert.Equal(t, waiting, n)
			ln, counted := ls.byName["job"], 0
			if ln == nil {
				assert.Zero(t, inLine)
				return
			}
			var before *call
			for cl := ln.first; cl != nil; cl = cl.after {
				assert.Same(t, before, cl.before)
				before, counted = cl, counted+1
			}
			assert.Same(t, before, ln.last)
			assert.Equal(t, inLine, counted)
			assert.Equal(t, inLine, ln.behind)
		}
		first, firstEnd := enter(t.Context())
		require.NoError(t, <-firstEnd)
		second, secondEnd := enter(ctx)
		third, thirdEnd := enter(t.Context())
		fourth, fourthEnd := enter(ctx)
		check(4, 3, map[*call]place{first: atHead, second: behind, third: behind, fourth: behind})

		cancel() // one from the middle and one from the end
		require.ErrorIs(t, <-secondEnd, context.Canceled)
		require.ErrorIs(t, <-fourthEnd, context.Canceled)
		check(2, 1, map[*call]place{first: atHead, second: gone, third: behind, fourth: gone})

		l := &Lease{}
		require.True(t, ls.hold(first, l))
		check(1, 1, map[*call]place{first: gone, third: behind})
		ls.drop(first, l) // it could not be given out
		check(2, 1, map[*call]place{first: atHead, third: behind})
		require.True(t, ls.hold(first, l))

		next, _ := ls.next(first.line)
		require.Same(t, third, next)
		require.True(t, ls.pass(first.line, l, third, &passed{}))
		require.NoError(t, <-thirdEnd)
		check(1, 0, map[*call]place{third: atHead})

		fifth, fifthEnd := enter(t.Context())
		time.Sleep(time.Minute)
		sixth, _ := enter(t.Context())
		ls.outage(third, ErrUnavailable)
		time.Sleep(59 * time.Second)
		lasted, left := ls.outage(third, ErrUnavailable)
		assert.Equal(t, 59*time.Second, lasted)
		assert.Equal(t, time.Second, left, "from the beginning of the outage")
		time.Sleep(time.Second)
		ls.outage(third, ErrUnavailable)
		require.ErrorIs(t, <-fifthEnd, ErrUnavailable)
		check(1, 0, map[*call]place{third: atHead, fifth: gone, sixth: gone})
		ls.leave(third)
		check(0, 0, map[*call]place{third: gone})
		assert.Empty(t, ls.byName)
	})
}

// A loss that is told while its holder unlocks must not put off what that has begun.
func TestTheSoonerOfTwoTakeBacksStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(granting{}, nil)
		now := time.Now()
		l := &Lease{client: c, name: "job", hold: granting{}, start: now, expiry: now.Add(time.Minute),
			settings: settings{ttl: time.Minute}}
		l.takeBack(stopped)
		l.takeBack(lost)
		synctest.Wait()
		assert.Equal(t, uint64(1), c.Stats().TakenBack)
		assert.Zero(t, c.Stats().Pending)
		require.NoError(t, c.Close())
	})
}

func TestALabelWithoutAProgramName(t *testing.T) {
	args := os.Args
	defer func() { os.Args = args }()
	os.Args = nil
	assert.Contains(t, makeLabel(), "unknown-program@")
}
