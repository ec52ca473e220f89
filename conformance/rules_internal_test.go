package conformance

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/holds"
	"github.com/golockers/locker/internal/memlock"
)

// Of random histories, mostly right, the rules say what package holds says, by which compare and the campaigns
// judge: whether two hold at once, and, if not, whether the tokens are wrong.
func TestTheRulesAgreeWithPackageHolds(t *testing.T) {
	r := newRecorder(t.Context(), t.Name())
	defer r.Close()
	k := newKit(r, Harness{New: func(T) driver.Backend { return memlock.New(false) }}, true, &facts{})
	random := rand.New(rand.NewPCG(1, 2))
	said := map[[2]bool]int{}
	for range 3_000 {
		h, now := k.history(), time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		var asking, holding []*call
		var shared bool // the last one is
		var all []holds.Hold
		last := uint64(100)
		for n := range 24 {
			now = now.Add(time.Millisecond)
			add := func(o op, a *attempt) *call {
				h.calls = append(h.calls, &call{op: o, who: a.who, name: "x", of: a, began: now})
				return h.calls[len(h.calls)-1]
			}
			switch what := random.IntN(3); {
			case what == 0:
				asking = append(asking, add(opAcquire, h.attempt(fmt.Sprint(n), driver.Request{Name: "x", TTL: time.Minute,
					Wait: true, Shared: random.IntN(2) == 0})))
			case what == 1 && len(holding) > 0:
				i := random.IntN(len(holding))
				add(opRelease, holding[i].of).ended = now
				all[slices.IndexFunc(all, func(h holds.Hold) bool { return h.Who == holding[i].who })].To = now.UnixNano()
				holding = slices.Delete(holding, i, i+1)
			case what == 2 && len(asking) > 0:
				i := random.IntN(len(asking))
				c := asking[i]
				beside := c.of.req.Shared && shared && len(holding) > 0
				if len(holding) > 0 && !beside && random.IntN(16) > 0 {
					break // it waits
				}
				token, off := last+1, uint64(random.IntN(16)/14*(1+random.IntN(2)))
				switch {
				case last == 100: // the first
					off = 0
				case beside:
					token = last
				case c.of.req.Shared && shared: // whether all sharers had left need not be certain
					off *= 2
				}
				last, shared = token-off, c.of.req.Shared
				c.ended, c.grant = now, driver.Grant{Hold: struct{ driver.Hold }{}, Token: last,
					Validity: driver.Validity{Since: c.began, TTL: time.Minute}}
				all = append(all, holds.Hold{Who: c.who, Shared: shared, Asked: c.began.UnixNano(), From: now.UnixNano(),
					To: math.MaxInt64, Token: last})
				asking, holding = slices.Delete(asking, i, i+1), append(holding, c)
			}
		}
		both, wrong := false, false
		holds.Judge(all, func(a, b holds.Hold) { both = both || !a.Shared || !b.Shared },
			func(_, _ holds.Hold) { wrong = true })
		found := map[string]bool{}
		for _, v := range k.judgeAll(h) {
			found[v.rule.name] = true
		}
		told := h.timelineOf(h.calls[0], longTimeline, nil)
		require.Equal(t, both, found["exclusion"], told)
		require.True(t, both || wrong == found["token"], "wrong tokens: %v, of %v", wrong, told)
		said[[2]bool{both, wrong}]++
	}
	t.Log(said)
	require.Len(t, said, 4)
}

// Judged by hand, since no simulated service is in one process or in a kernel: where a dead holder's lock is free after
// a time, it has a deadline; and who waits in a kernel is served when nobody is in the way.
func TestRulesOfOneHost(t *testing.T) {
	r := newRecorder(t.Context(), t.Name())
	defer r.Close()
	k := newKit(r, Harness{New: func(T) driver.Backend { return memlock.New(false) }}, true, &facts{})
	k.g.Scope, k.queue, k.g.Exclusion = locker.ScopeHost, false, locker.ExclusionKernel
	for _, c := range []struct {
		recovery driver.Recovery
		waits    time.Duration // how long another waits after the first has released it
		broken   string
	}{
		{locker.RecoveryNone, time.Millisecond, ""},
		{locker.RecoveryAtOnce, time.Millisecond, ""},
		{locker.RecoveryAfterTTL, time.Millisecond, "validity"},
		{locker.RecoveryWatched, time.Millisecond, "validity"},
		{locker.RecoveryAtOnce, time.Minute, "free"},
	} {
		k.g.DeadHolder = c.recovery
		h, now := k.history(), time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		add := func(o op, a *attempt, began, ended time.Time, token uint64) {
			one := &call{op: o, who: a.who, name: "x", of: a, began: began, ended: ended}
			if token > 0 {
				one.grant = driver.Grant{Hold: struct{ driver.Hold }{}, Token: token, Validity: driver.Validity{Since: began}}
			}
			h.calls = append(h.calls, one)
		}
		first := h.attempt("a", driver.Request{Name: "x", TTL: time.Minute})
		next := h.attempt("b", driver.Request{Name: "x", TTL: time.Minute, Wait: true})
		free := now.Add(2 * time.Millisecond)
		add(opAcquire, first, now, now, 1)
		add(opAcquire, next, now.Add(time.Millisecond), free.Add(c.waits), 2)
		add(opRelease, first, free, free, 0)
		found := ""
		for _, v := range k.judgeAll(h) {
			found = v.rule.name
		}
		require.Equal(t, c.broken, found, "%v, %v", c.recovery, c.waits)
	}
}

// A note lasts as long as its writer asks, however often; and no longer than a grant that may have removed it.
func TestANoteLastsAsLongAsItsWriterAsks(t *testing.T) {
	r := newRecorder(t.Context(), t.Name())
	defer r.Close()
	k := newKit(r, Harness{New: func(T) driver.Backend { return memlock.New(false) }}, true, &facts{})
	k.queue, k.g.Scope = false, locker.ScopeNetwork
	for _, lost := range []bool{false, true} { // the reply to another writer
		h, now := k.history(), time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		add := func(who string, shared bool, err error) {
			now = now.Add(time.Millisecond)
			a := h.attempt(who, driver.Request{Name: "x", TTL: time.Minute, Shared: shared, Wait: true})
			c := &call{op: opAcquire, who: who, name: "x", of: a, began: now, ended: now.Add(time.Microsecond), err: err}
			if err == nil {
				c.grant = driver.Grant{Hold: struct{ driver.Hold }{}, Token: 1, Validity: driver.Validity{Since: now, TTL: time.Minute}}
			}
			h.calls = append(h.calls, c)
		}
		add("a", true, nil)
		for i := range 20 {
			add("b", false, locker.ErrHeld)
			h.calls[len(h.calls)-1].grant.Refused = &driver.Refusal{AskWithin: 300 * time.Millisecond}
			if i == 10 && lost {
				add("c", false, locker.ErrUnavailable)
			}
			if i == 10 {
				add("d", true, nil)
			}
		}
		gate := slices.ContainsFunc(k.judgeAll(h), func(v violation) bool { return v.rule.name == "gate" })
		require.Equal(t, !lost, gate)
	}
}
