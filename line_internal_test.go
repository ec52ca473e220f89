package locker

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/driver"
)

// inLines plays calls of one client for one name, as words: a call whose name begins with r is a
// sharer, with t one that does not wait.
type inLines struct {
	t      *testing.T
	c      *Client
	calls  map[string]*call
	names  map[*call]string
	leases map[string]*Lease
	ctxs   map[string]context.Context
	ends   map[string]context.CancelFunc
}

func newInLines(t *testing.T) *inLines {
	return &inLines{t, New(granting{}, nil), map[string]*call{}, map[*call]string{}, map[string]*Lease{},
		map[string]context.Context{}, map[string]context.CancelFunc{}}
}

func (p *inLines) step(do, who string) {
	ls, cl := &p.c.lines, p.calls[who]
	switch do {
	case "comes":
		cl = &call{client: p.c, name: "job", wait: !strings.HasPrefix(who, "t"), began: time.Now(),
			cancel: func(error) {}}
		cl.settings = settings{Asked: Asked{TTL: time.Hour, Patience: time.Minute, Shared: strings.Contains(who, "r")}}
		p.ctxs[who], p.ends[who] = context.WithCancel(p.t.Context())
		p.calls[who], p.names[cl] = cl, who
		go func() { _ = ls.enter(p.ctxs[who], "job", cl) }()
	case "in":
		l, _ := cl.request()
		l.grant = driver.Grant{Hold: granting{}, Validity: driver.Validity{Since: time.Now(), TTL: time.Hour}}
		require.NoError(p.t, ls.grant(cl, l))
		p.leases[who] = l
	case "refused", "away":
		if _, _ = ls.refused(cl, map[string]error{"refused": ErrHeld, "away": ErrUnavailable}[do]); cl.place == beside {
			go func() { _ = ls.again(p.ctxs[who], cl) }()
		}
	case "out": // unlocked
		ls.release(p.leases[who])
		p.c.schedule.remove(p.leases[who])
		delete(p.leases, who)
	case "leaves":
		asked := cl.asks()
		if p.ends[who](); asked {
			cl.leave()
		}
	}
	synctest.Wait()
	p.holdsTogether()
}

// asking are those that ask, in their order.
func (p *inLines) asking() (who []string) {
	if ln := p.c.lines.byName["job"]; ln != nil {
		for cl := ln.first; cl != nil; cl = cl.after {
			if cl.asks() {
				who = append(who, p.names[cl])
			}
		}
	}
	return who
}

func (cl *call) asks() bool { return cl.place == asks || cl.place == beside }

// holdsTogether checks what is true of a line at any time.
func (p *inLines) holdsTogether() {
	ln := p.c.lines.byName["job"]
	if ln == nil {
		assert.Empty(p.t, p.leases)
		return
	}
	asking, waiting, n := 0, 0, 0
	var before, next *call
	for cl := ln.first; cl != nil; cl = cl.after {
		assert.Same(p.t, before, cl.before)
		before = cl
		switch {
		case cl.asks():
			asking++
		case next == nil:
			next = cl
		}
		if cl.wait {
			waiting++
		}
		n++
	}
	assert.Same(p.t, before, ln.last)
	assert.Same(p.t, next, ln.waiter())
	assert.Equal(p.t, []int{n, asking, waiting}, []int{ln.calls, ln.asking, ln.waiting})
	held, all := p.c.lines.count()
	assert.Equal(p.t, []int{len(p.leases), waiting}, []int{held, all})
	assert.Equal(p.t, held > 0 && ln.sharers == 0, ln.alone)
	assert.True(p.t, !ln.alone || asking == 0, "whoever holds alone is asked beside")
	assert.True(p.t, n == 0 || ln.alone || ln.first.asks(), "nobody asks")
	assert.True(p.t, next == nil || !ln.mayAsk(next), "somebody waits who may ask")
	for cl := ln.first; cl != nil; cl = cl.after {
		_, tries := ln.tries[cl]
		assert.Equal(p.t, !cl.wait && !cl.asks(), tries)
		assert.True(p.t, !tries || ln.inTheWay(cl) == nil, "a TryLock waits for what is known")
		assert.True(p.t, !cl.asks() || cl.settings.Shared || asking == 1, "a writer asks beside others")
		late := ln.outage != nil && cl.place == waits && ln.patience(cl).Before(ln.quiet)
		assert.False(p.t, late, "its patience is looked at too late")
	}
}

// Whatever happens in a line, the first may ask, and no two that may not do.
func TestLinesHoldTogether(t *testing.T) {
	for seed := range uint64(300) {
		synctest.Test(t, func(t *testing.T) {
			p, r := newInLines(t), rand.New(rand.NewPCG(seed, 1))
			for i := 0; i < 60 && !t.Failed(); i++ {
				asking := p.asking()
				held := slices.Sorted(maps.Keys(p.leases))
				switch n := r.IntN(10); {
				case n < 4:
					time.Sleep(time.Duration(r.IntN(2)) * 10 * time.Second)
					p.step("comes", []string{"", "t", "r", "r", "tr"}[r.IntN(5)]+fmt.Sprint(i))
				case n < 8 && len(asking) > 0:
					who := asking[r.IntN(len(asking))]
					do := []string{"in", "in", "refused", "away", "leaves"}[r.IntN(5)]
					if shared := p.calls[who].settings.Shared; do == "in" && !shared && len(p.leases) > 0 {
						do = "refused"
					}
					if !p.calls[who].wait && (do == "refused" || do == "away") {
						do = "leaves"
					}
					p.step(do, who)
				case len(held) > 0:
					p.step("out", held[r.IntN(len(held))])
				}
			}
			for who, cl := range p.calls {
				if cl.place != gone && cl.line != nil {
					p.step("leaves", who)
				}
			}
			for who := range p.leases {
				p.step("out", who)
			}
			assert.Empty(t, p.c.lines.byName, "seed %d", seed)
			require.NoError(t, p.c.Close())
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
				c := New(granting{}, nil)
				ls, came, least := &c.lines, c.lines.waiting, time.Hour
				for i := range trying + waiting {
					cl := &call{client: c, name: "job", wait: i >= trying, began: time.Now()}
					cl.settings = settings{Asked: Asked{Shared: !cl.wait, Patience: time.Hour}}
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
