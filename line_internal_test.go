package locker

import (
	"context"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/driver"
)

// inLine is a call of one client for one name, and its lease.
type inLine struct {
	*call
	ctx   context.Context
	end   context.CancelFunc
	lease *Lease
}

func (one *inLine) asks() bool  { return one.place == asks || one.place == beside }
func (one *inLine) holds() bool { return one.lease != nil }
func (one *inLine) waits() bool { return one.wait && !one.late }

// comes lets a call come: of a sharer (r), one that does not wait (t), or one whose MaxWait is over before (l).
func comes(t *testing.T, c *Client, kind string) *inLine {
	one := &inLine{call: &call{client: c, name: "job", wait: !strings.Contains(kind, "t"), began: time.Now(),
		cancel: func(error) {}}}
	one.settings = settings{Asked: Asked{TTL: time.Minute, Shared: strings.Contains(kind, "r")}}
	one.ctx, one.end = context.WithCancel(t.Context())
	if kind == "l" {
		c.lines.timeUp(one.call)
	}
	go func() { _ = c.lines.enter(one.ctx, "job", one.call) }()
	return one
}

func (one *inLine) leaves() {
	asked := one.asks()
	if one.end(); asked {
		one.leave()
	}
}

// granted makes a lease of a grant.
func (one *inLine) granted(t *testing.T) {
	one.lease, _ = one.request()
	one.lease.grant = driver.Grant{Hold: granting{}, Validity: driver.Validity{Since: time.Now(), TTL: time.Hour}}
	require.NoError(t, one.client.lines.grant(one.call, one.lease))
}

// refused answers so, and lets one that asked beside the first stand in line.
func (one *inLine) refused(err error) {
	ls := &one.client.lines
	if _, _ = ls.refused(one.call, err); one.place == beside {
		go func() { _ = ls.again(one.ctx, one.call) }()
	}
}

func (one *inLine) unlocks() {
	one.client.lines.release(one.lease)
	one.client.schedule.remove(one.lease)
	one.lease = nil
}

// holdsTogether checks what is true of a line at any time; n leases are held.
func holdsTogether(t *testing.T, c *Client, leases int) {
	ln := c.lines.byName["job"]
	if ln == nil {
		assert.Zero(t, leases)
		return
	}
	asking, waiting, n := 0, 0, 0
	var before, next *call
	for cl := ln.first; cl != nil; cl = cl.after {
		assert.Same(t, before, cl.before)
		before = cl
		switch {
		case cl.place != waits:
			asking++
		case next == nil:
			next = cl
		}
		if cl.wait {
			waiting++
		}
		n++
	}
	assert.Same(t, before, ln.last)
	assert.Same(t, next, ln.waiter())
	assert.Equal(t, []int{n, asking, waiting}, []int{ln.calls, ln.asking, ln.waiting})
	held, all := c.lines.count()
	assert.Equal(t, []int{leases, waiting}, []int{held, all})
	assert.Equal(t, held > 0 && ln.sharers == 0, ln.alone)
	assert.True(t, !ln.alone || asking == 0, "whoever holds alone is asked beside")
	assert.True(t, n == 0 || ln.alone || ln.first.place != waits, "nobody asks")
	assert.True(t, next == nil || !ln.mayAsk(next), "somebody waits who may ask")
	for cl := ln.first; cl != nil; cl = cl.after {
		_, tries := ln.tries[cl]
		stands := cl.place == waits
		assert.Equal(t, !cl.wait && stands, tries)
		assert.True(t, !tries || ln.inTheWay(cl) == nil, "a TryLock waits for what is known")
		assert.True(t, stands || cl.settings.Shared || asking == 1, "a writer asks beside others")
		assert.False(t, ln.outage != nil && stands && ln.outageEnds(cl).Before(ln.quiet), "its time is looked at too late")
		assert.True(t, !cl.late || !stands || cl.attempts > 0 || !cl.wait, "it waits after its MaxWait")
	}
}

// Whatever happens in a line, the first may ask, and no two that may not do.
func TestLinesHoldTogether(t *testing.T) {
	for seed := range uint64(300) {
		synctest.Test(t, func(t *testing.T) {
			c, r := must(New(granting{}, nil)), rand.New(rand.NewPCG(seed, 1))
			var all []*inLine
			some := func(are func(*inLine) bool) (those []*inLine, any *inLine) {
				for _, one := range all {
					if are(one) {
						those = append(those, one)
					}
				}
				if len(those) > 0 {
					any = those[r.IntN(len(those))]
				}
				return those, any
			}
			for i := 0; i < 60 && !t.Failed(); i++ {
				_, asks := some((*inLine).asks)
				leases, holds := some((*inLine).holds)
				_, waits := some((*inLine).waits)
				switch n, do := r.IntN(10), r.IntN(5); {
				case n < 4:
					time.Sleep(time.Duration(r.IntN(2)) * 10 * time.Second)
					all = append(all, comes(t, c, []string{"", "t", "r", "r", "tr", "l"}[r.IntN(6)]))
				case n == 4 && waits != nil:
					c.lines.timeUp(waits.call)
				case n == 5 && waits != nil:
					waits.leaves()
				case n < 8 && asks != nil && do < 2 && (asks.settings.Shared || leases == nil):
					asks.granted(t)
				case n < 8 && asks != nil && (do == 4 || !asks.wait):
					asks.leaves()
				case n < 8 && asks != nil:
					asks.refused([]error{ErrHeld, ErrHeld, ErrHeld, ErrUnavailable}[do])
				case holds != nil:
					holds.unlocks()
				}
				synctest.Wait()
				leases, _ = some((*inLine).holds)
				holdsTogether(t, c, len(leases))
			}
			for _, one := range all {
				if one.place != gone && one.line != nil {
					one.leaves()
				}
			}
			synctest.Wait()
			leases, _ := some((*inLine).holds)
			for _, one := range leases {
				one.unlocks()
			}
			assert.Empty(t, c.lines.byName, "seed %d", seed)
			require.NoError(t, c.Close())
		})
	}
}

// Beside 16,000 TryLock of sharers, a lock on another name took a third of a second: each looked through
// all that asked. So did each answer in an outage, through all that waited.
func TestALineIsNotLookedThrough(t *testing.T) {
	admit := func(ls *lines, ln *line) { ls.admit(ln) }
	for what, test := range map[string]struct {
		trying, waiting int // in a long line
		do              func(ls *lines, ln *line)
	}{
		"where many ask":           {MaxSharers, 0, admit},
		"where one waits for them": {MaxSharers, 1, admit},
		"where many wait":          {1, MaxSharers, func(ls *lines, ln *line) { ls.refused(ln.first, ErrUnavailable) }},
	} {
		t.Run(what, func(t *testing.T) {
			took := func(trying, waiting int) time.Duration {
				c := must(New(granting{}, nil))
				ls, came, least := &c.lines, c.lines.waiting, time.Hour
				for i := range trying + waiting {
					cl := &call{client: c, name: "job", wait: i >= trying, began: time.Now()}
					cl.settings = settings{Asked: Asked{Shared: !cl.wait, TTL: time.Hour}}
					if !cl.wait {
						require.NoError(t, ls.enter(t.Context(), "job", cl))
					} else {
						go func() { _ = ls.enter(t.Context(), "job", cl) }()
					}
				}
				for came < waiting {
					_, came = ls.count()
				}
				for range 100 {
					began := time.Now()
					for range 1000 {
						test.do(ls, ls.byName["job"])
					}
					least = min(least, time.Since(began))
				}
				return least
			}
			short := took(1, min(test.waiting, 1))
			assert.Less(t, took(test.trying, test.waiting), 100*short+time.Millisecond/10)
		})
	}
}

// A lock is passed to a call at the moment when its context ends: it has the lock, once that is told.
func TestWhoWasPassedALockTakesIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ls lines
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		cl := &call{lease: &Lease{}, ready: make(chan struct{})}
		time.AfterFunc(time.Second, func() { close(cl.ready) })
		began := time.Now()
		require.NoError(t, ls.await(ctx, cl))
		assert.Equal(t, time.Second, time.Since(began))
	})
}
