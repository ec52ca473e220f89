package conformance

import (
	"slices"
	"sync"
	"time"

	"github.com/golockers/locker/internal/stall"
)

// shorten removes steps, and then special properties of the rest, as long as the same rule is broken.
// first plays scripts, and returns the first that breaks it; -1: none.
func (b brokenScript) shorten(first func([]script) (brokenScript, int)) brokenScript {
	rule := b.rule()
	if rule == "" || b.sc.what == "" {
		return b
	}
	keep := func(c brokenScript) {
		c.scripts, c.shorter = b.scripts, true
		b = c.only(rule)
	}
	for size, from := max(1, len(b.sc.steps)/2), 0; size > 0; {
		var shorter []script
		var at []int
		for i := range (len(b.sc.steps) + size - 1) / size {
			where := (from + i*size) % max(1, len(b.sc.steps)) // continue where something was removed
			sc := b.sc
			sc.steps = slices.Delete(slices.Clone(sc.steps), where, min(where+size, len(sc.steps)))
			if len(sc.steps) > 0 {
				shorter, at = append(shorter, sc), append(at, where)
			}
		}
		if c, i := first(shorter); i >= 0 {
			keep(c)
			from, size = at[i], min(size, len(b.sc.steps))
		} else {
			from, size = 0, size/2
		}
	}
	for _, simplify := range []func(sc *script, st *step){
		func(sc *script, _ *step) { sc.plain = true }, func(_ *script, st *step) { st.label = "" },
		func(_ *script, st *step) { st.limit = whole }, func(_ *script, st *step) { st.min = 0 },
		func(_ *script, st *step) { st.shared = false },
		func(_ *script, st *step) {
			if st.do != doPause {
				st.ttl = 0
			}
		},
	} {
		sc := b.sc
		sc.steps = slices.Clone(sc.steps)
		for i := range sc.steps {
			simplify(&sc, &sc.steps[i])
		}
		if c, i := first([]script{sc}); i >= 0 {
			keep(c)
		}
	}
	return b
}

// The limits of shortening: the number of rules, the time for each on a real service, and scripts side
// by side.
const (
	mostShortened = 3
	shortening    = 20 * time.Second
	candidates    = 8
)

// shortened is a script after shortening on a real service.
func (k *kit) shortened(r *recorder, p plan, b brokenScript) brokenScript {
	rule, until := b.rule(), time.Now().Add(shortening)
	first := func(all []script) (found brokenScript, at int) {
		for from := 0; from < len(all) && time.Now().Before(until); from += candidates {
			part := all[from:min(from+candidates, len(all))]
			played := make([]brokenScript, len(part))
			var each sync.WaitGroup
			for i, sc := range part {
				each.Go(func() { played[i] = k.once(r, p, b.n, sc) })
			}
			each.Wait()
			if i := slices.IndexFunc(played, func(c brokenScript) bool { return c.breaks(rule) }); i >= 0 {
				return played[i], from + i
			}
		}
		return b, -1
	}
	if _, i := first([]script{b.sc, b.sc, b.sc}); i < 0 {
		b.timely = b.rule() != "" && b.sc.what != ""
		return b
	}
	return b.shorten(first)
}

// once plays a script by itself, with fresh names. A failure while the machine stalls proves nothing.
func (k *kit) once(r *recorder, p plan, n int, sc script) brokenScript {
	own := *k
	own.run += "-" + owner()[:6]
	happen := func(*recorder, server) {}
	if sc.event != "" {
		own.check, own.plain, happen = eventChecks[sc.event], nil, own.happen
	}
	stop := stall.Longest()
	b := own.one(r.Context(), n, own.fresh(sc, p.seed, n), happen)
	if max(stop(), b.slow) > own.stall([]brokenScript{b}) && !unexplained(b) {
		b.found = nil
	}
	return b
}

// replay plays the script of a plan until it breaks something.
func (k *kit) replay(r *recorder, p plan) findings {
	n := max(0, p.only)
	sc := p.script(k, n)
	if k.cannot(r, sc) {
		return findings{}
	}
	var b brokenScript
	for range replays {
		if b = k.once(r, p, n, sc); b.failed() {
			break
		}
	}
	b.shorter = true
	return byRule([]brokenScript{b})
}

// replays is how often a script that may depend on timing is played.
const replays = 5

// cannot reports whether the harness lacks what a script needs, and fails t with the reason.
func (k *kit) cannot(t T, sc script) bool {
	has := sc.event == "" || slices.ContainsFunc(k.events(), func(c cell) bool { return c.event == sc.event })
	if !has {
		t.Errorf("%s: the harness has no hook for the server event: %s", ScriptEnv, sc.event)
	}
	return !has
}
