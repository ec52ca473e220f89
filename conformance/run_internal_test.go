package conformance

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/memlock"
)

// What fails while the machine stalls is tried again, and is never told as anything but a failure.
func TestCheckThatFailsOnAStalledMachineIsTriedAgain(t *testing.T) {
	h := Harness{New: func(T) driver.Backend { return memlock.New(false) }, TTL: 100 * time.Millisecond}
	var ttls []time.Duration
	broken := check{Name: "broken", Promise: "Nothing.", run: func(s *trial) {
		ttls = append(ttls, s.h.TTL)
		s.broken("a lease that was lost", "nobody knows")
	}}
	stalled := 0
	p := prover{watch: func() func() time.Duration {
		return func() time.Duration {
			if stalled--; stalled >= 0 {
				return time.Second
			}
			return 0
		}
	}}
	for _, c := range []struct {
		stalled int
		want    outcome
		ttls    int
	}{{0, failed, 1}, {1, failed, 2}, {3, failed, 3}} {
		stalled, ttls = c.stalled, nil
		synctest.Test(t, func(t *testing.T) { // where this machine does not stall, too
			r := p.prove(t.Context(), h, broken)
			assert.Equal(t, c.want, r.Outcome)
			assert.Equal(t, []time.Duration{h.TTL, 2 * h.TTL, 4 * h.TTL}[:c.ttls], ttls, "each try has more time")
			if c.stalled == 3 {
				assert.Contains(t, r.Failures[len(r.Failures)-1], "stalled in each of 3 tries")
			}
			time.Sleep(2 * time.Hour)
		})
	}
}

// Neither is a script, unless it has shown two holders: that is told at once.
func TestScriptThatFailsOnASlowServiceIsPlayedAgainButForTwoHolders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // where this machine does not stall, too
		h := Harness{New: func(T) driver.Backend { return memlock.New(false) }, TTL: 100 * time.Millisecond}
		r := newRecorder(t.Context(), t.Name())
		defer r.Close()
		k := newKit(r, h, false, &facts{})
		for _, c := range []struct {
			rule        string
			do          verb
			slow        time.Duration
			fail, plays int
			told        bool
		}{
			{"wake", doRenew, time.Minute, 2, 3, false}, {"wake", doRenew, time.Minute, 3, 3, true},
			{"wake", doRenew, 0, 1, 1, true}, {"exclusion", doRenew, time.Minute, 1, 1, true},
			{"exclusion", doBreak, time.Minute, 2, 3, false},
		} {
			plays := 0
			broken, slow := k.steady(func(brokenScript, time.Duration) {}, func(*kit) []brokenScript {
				b := brokenScript{slow: c.slow, sc: script{steps: []step{{do: c.do}}}}
				if plays++; plays <= c.fail {
					b.found = []violation{{rule: rule{name: c.rule}}}
				}
				return []brokenScript{b}
			})
			assert.Equal(t, c.plays, plays, "%+v", c)
			assert.Equal(t, c.told, len(broken) > 0, "%+v", c)
			assert.Equal(t, c.slow > 0, slow, "%+v", c)
		}
	})
}

// What is broken when servers fail can be played again by the number that is told. What is of no one script has
// none: a client that does not close, or stalls that explain most of what failed.
func TestLineToPlayAgainIsTrue(t *testing.T) {
	play := func(only int, begin time.Duration, of func(*memlock.Backend) Harness) (found findings) {
		synctest.Test(t, func(t *testing.T) {
			h := of(memlock.New(true))
			h.TTL = 100 * time.Millisecond
			found, _ = checkReal(t.Context(), h, plan{test: "TestX", seed: 7, only: only, begin: begin})
			time.Sleep(2 * time.Hour)
		})
		return found
	}
	crashes := func(service *memlock.Backend) Harness {
		return Harness{New: func(T) driver.Backend { return weak{service} },
			Crash: func(T, int) func() { lose(t, service); return func() {} }}
	}
	t.Setenv(proveEnv, "")
	found := play(-1, -time.Second, crashes)
	require.NotEmpty(t, found.all)
	first := found.all[0]
	again := play(first.n, time.Minute, crashes)
	require.NotEmpty(t, again.all)
	assert.GreaterOrEqual(t, again.all[0].n, 3*ofEvents)
	assert.Equal(t, first.sc.what, again.all[0].sc.what)
	assert.Equal(t, first.rule(), again.all[0].rule())
	p := plan{test: "TestX/histories", seed: 7}
	assert.Contains(t, p.tellOne(again.all[0]),
		fmt.Sprintf("again: CONFORMANCE_SEED=7/%d go test -run '^TestX$/^histories$' .", first.n))

	assert.Empty(t, hidden(14, 20))
	assert.Empty(t, hidden(50, 100))
	t.Setenv(proveEnv, "1")
	assert.Regexp(t, `^\d+ of \d+ scripts failed while .*\n  again: LOCKER_PROVE=1 CONFORMANCE_SEED=7 go test`,
		p.tell(byRule(hidden(51, 100))))
}

// What proves most is played first, however short the time is, and a run that has no time for it has failed.
func TestWhatHasToBePlayedIsPlayedHoweverLongItTakes(t *testing.T) {
	for _, c := range []struct {
		begin, deadline time.Duration
		log, broken     string
	}{
		{begin: 0, log: `(?m)^PLAYED: 28 scripts, 28 at least, on memory in \d`},
		{begin: 12 * time.Second, log: `(?m)^PLAYED: \d\d\d+ scripts, 28 at least, on memory in `},
		{begin: time.Minute, deadline: time.Millisecond, log: `(?m)^PLAYED: \d+ scripts, 28 at least, on memory in `,
			broken: `^only \d+ scripts were played of the 28 that have to be`},
	} {
		synctest.Test(t, func(t *testing.T) {
			service, numbers := memlock.New(true), map[string]bool{}
			h := Harness{New: func(T) driver.Backend { return service }, TTL: 100 * time.Millisecond}
			p := plan{test: "TestX", seed: 7, only: -1, begin: c.begin}
			if c.deadline > 0 {
				p.deadline = time.Now().Add(c.deadline)
			}
			r := newRecorder(t.Context(), t.Name())
			_ = r.Do(func() {
				k := newKit(r, h, false, &facts{})
				cells := k.cells()
				for _, n := range musts(cells) {
					numbers[k.script(cells, 7, n).what] = true
				}
				assert.Len(t, numbers, specials+len(cells))
				found, log := k.real(r, p)
				assert.Regexp(t, c.log, strings.Join(log, "\n"))
				said := ""
				for _, b := range found.all {
					said += strings.Join(b.more, "\n")
				}
				assert.Equal(t, c.broken != "", len(found.all) > 0, "%v", found)
				assert.Regexp(t, c.broken, said)
			})
			r.cancel()
			r.Close()
			time.Sleep(2 * time.Hour)
		})
	}
}

// weak is a backend that claims more than it keeps.
type weak struct{ *memlock.Backend }

func (weak) Close() error { return nil }

func (w weak) Guarantees() locker.Guarantees {
	g := w.Backend.Guarantees()
	g.ServerCrashes = 1
	return g
}

// lose is what happens to locks that their servers do not keep.
func lose(t *testing.T, service *memlock.Backend) {
	for st, err := range service.List(t.Context(), "") {
		assert.NoError(t, err)
		service.Lose(st.Name)
	}
}

// What fails leaves no server down, and no clock moved: what is tried next must not run on that.
func TestFailuresMendTheServers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		service := weak{memlock.New(false)}
		down, moved := 0, time.Duration(0)
		crash := func(_ T, n int) func() {
			down += n
			lose(t, service.Backend)
			return func() { down -= n }
		}
		h := Harness{
			TTL: 100 * time.Millisecond, New: func(T) driver.Backend { return service }, Crash: crash, Hang: crash,
			JumpClock: func(_ T, d time.Duration) {
				moved += d
				lose(t, service.Backend)
			},
		}
		r := newRecorder(t.Context(), t.Name())
		_ = r.Do(func() {
			k := newKit(r, h, true, &facts{})
			for _, event := range []server{byCrash, byHang, byJump, byJumpBack} {
				assert.NotEmpty(t, k.event(r, 1, event, -1), event)
				assert.Zero(t, down, "servers")
				assert.Zero(t, moved)
			}
		})
		r.cancel()
		r.Close()
		assert.Empty(t, r.Failures())
		time.Sleep(2 * time.Hour)
	})
}

func TestKnownGoroutinesAreNoLeaksAndCleanUpsRunInReverseUnderAnEndedContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := Harness{New: func(T) driver.Backend { return memlock.New(false) }}
		var order []string
		leaking := check{Name: "leaking", run: func(s *trial) {
			go time.Sleep(time.Hour)
			for _, name := range []string{"first", "second"} {
				s.Cleanup(func() {
					order = append(order, name)
					assert.ErrorIs(t, s.Context().Err(), context.Canceled)
				})
			}
		}}
		r := new(prover).prove(t.Context(), h, leaking)
		assert.Contains(t, r.Failures[0], "time.Sleep")
		assert.Equal(t, []string{"second", "first"}, order)
		h.KnownGoroutines = []string{"time.Sleep"}
		assert.Equal(t, passed, new(prover).prove(t.Context(), h, leaking).Outcome)
		time.Sleep(time.Hour)
	})
}

func TestCloseThatHangsHidesNoSlowService(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := Harness{New: func(T) driver.Backend { return slow{memlock.New(false)} }}
		assert.Equal(t, time.Second, h.latency(t.Context()))
		time.Sleep(time.Hour)
	})
}

type slow struct{ *memlock.Backend }

func (s slow) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	time.Sleep(time.Second)
	return s.Backend.Acquire(ctx, req)
}

func (slow) Close() error {
	time.Sleep(time.Minute)
	return nil
}

// What a busy machine makes of a history, and seldom does: told is whether the rule may be told of it.
func TestRulesAllowForWhatTakesItsTime(t *testing.T) {
	at := func(ms int) time.Time { return time.Time{}.Add(time.Hour + time.Duration(ms)*time.Millisecond) }
	var k *kit
	var h *history
	add := func(c call, from, to int) {
		c.name, c.began, c.ended = "x", at(from), at(to)
		h.calls = append(h.calls, &c)
	}
	asks := func(who string, wait bool) *attempt {
		return h.attempt(who, driver.Request{Name: "x", TTL: time.Minute, Wait: wait})
	}
	hold := func(from, to int) (a *attempt) {
		a = asks("a", false)
		add(call{op: opAcquire, who: "a", of: a, grant: driver.Grant{Hold: struct{ driver.Hold }{},
			Validity: driver.Validity{Since: at(from), TTL: time.Minute}}}, from, to)
		return a
	}
	broken := func(a *attempt, f fault, when int) { // by another, while a fault is set, and then it is undone
		h.outages = append(h.outages, &outage{who: "a", fault: f, from: at(15), sure: at(15), to: at(9000)})
		saw := &call{op: opInspect, who: "b", name: "x", began: at(when - 2), ended: at(when - 1),
			state: locker.State{Name: "x", Held: true}}
		add(call{op: opBreak, who: "b", seen: saw}, when, when+10)
		add(call{op: opUndo, who: "a", of: a}, 25, 40)
	}
	for _, c := range []struct {
		rule, what string
		play       func(told int)
	}{
		{"exclusion", "a deletion on several servers is of one whom the lock was given meanwhile", func(told int) {
			hold(0, 10)
			add(call{op: opDelete}, 20, 40-18*told)
			hold(25, 30)
			hold(45, 50)
		}},
		{"refusal", "what was given up is still at work on the name", func(told int) {
			a := hold(0, 10)
			add(call{op: opRaise, who: "a", of: a, err: context.Canceled}, 20, 25)
			add(call{op: opRelease, who: "a", of: a}, 30, 35)
			add(call{op: opAcquire, who: "b", of: asks("b", true), err: locker.ErrHeld}, 40+500*told, 45+500*told)
		}},
		{"refusal", "the nodes beyond a quorum are released later", func(told int) {
			k.g.Exclusion = locker.ExclusionQuorum
			add(call{op: opRelease, who: "a", of: hold(0, 10)}, 20, 25)
			add(call{op: opAcquire, who: "b", of: asks("b", true), err: locker.ErrHeld}, 26+500*told, 27+500*told)
		}},
		{"refusal", "a copy that was overtaken comes after the answer", func(told int) {
			h.outages = append(h.outages, &outage{who: "a", fault: []fault{heldOpen, replyLost}[told], from: at(0), to: at(100)})
			a := hold(5, 10)
			add(call{op: opDelete}, 12, 14)
			add(call{op: opRenew, who: "a", of: a, err: locker.ErrLost}, 20, 25)
			add(call{op: opAcquire, who: "b", of: asks("b", true), err: locker.ErrHeld}, 105, 106)
		}},
		{"refusal", "the first copy of a renewal was overtaken by the second", func(told int) {
			k.expires = true
			h.outages = append(h.outages, &outage{who: "a", fault: []fault{heldOpen, replyLost}[told], from: at(11), to: at(50_000)})
			a := hold(0, 10)
			add(call{op: opRenew, who: "a", of: a, grant: h.calls[0].grant}, 20, 25)
			add(call{op: opAcquire, who: "b", of: asks("b", true), err: locker.ErrHeld}, 100_000, 100_001)
		}},
		{"refusal", "two that look at one moment are in each other's way", func(told int) {
			add(call{op: opAcquire, who: "b", of: asks("b", true), err: locker.ErrHeld}, 5, 9)
			if told == 0 {
				add(call{op: opAcquire, who: "c", of: asks("c", true), err: locker.ErrHeld}, 8, 10)
			}
		}},
		{"refusal", "who looks whether it still has the lock is in the way", func(told int) {
			a := hold(0, 2)
			add(call{op: opUndo, who: "a", of: a}, 3, 4)
			add(call{op: opRaise, who: "a", of: a, err: locker.ErrLost}, 4+10*told, 9+10*told)
			add(call{op: opAcquire, who: "b", of: asks("b", true), err: locker.ErrHeld}, 5, 8)
		}},
		{"refusal", "a session that its client has given up may still be there", func(told int) {
			k.sessions = told == 0
			add(call{op: opRenew, who: "a", of: hold(0, 10), err: locker.ErrLost}, 20, 25)
			add(call{op: opAcquire, who: "b", of: asks("b", true), err: locker.ErrHeld}, 30, 31)
		}},
		{"refusal", "a MinHold outlasts the session of its holder", func(told int) {
			k.sessions = told == 0
			a := hold(0, 10)
			a.req.MinHold = time.Second
			add(call{op: opKeep, who: "a", of: a, keep: 500 * time.Millisecond, err: locker.ErrLost}, 500, 505)
			add(call{op: opAcquire, who: "b", of: asks("b", true), err: locker.ErrHeld}, 800, 801)
		}},
		{"refusal", "but not if another has had it since", func(told int) {
			k.sessions = true
			a := hold(0, 10)
			a.req.MinHold = time.Second
			if told == 1 {
				next := asks("c", false)
				add(call{op: opAcquire, who: "c", of: next, grant: h.calls[0].grant}, 300, 310)
				add(call{op: opRelease, who: "c", of: next}, 320, 330)
			}
			add(call{op: opKeep, who: "a", of: a, keep: 500 * time.Millisecond, err: locker.ErrLost}, 500, 505)
			add(call{op: opAcquire, who: "b", of: asks("b", true), err: locker.ErrHeld}, 800, 801)
		}},
		{"refusal", "a writer's note comes after the grant of another request of its client", func(told int) {
			k.g.DeadHolder, k.g.Shared, k.queue = locker.RecoveryWatched, locker.SharingWithTokens, false
			shares := func(who string) *attempt {
				return h.attempt(who, driver.Request{Name: "x", TTL: time.Minute, Shared: true})
			}
			c, w, again := shares("c"), asks("a", true), asks("a", true)
			granted := driver.Grant{Hold: struct{ driver.Hold }{}, Validity: driver.Validity{Since: at(0), TTL: time.Minute}}
			add(call{op: opAcquire, who: "c", of: c, grant: granted}, 0, 1)
			add(call{op: opAcquire, who: "a", of: w, err: locker.ErrHeld}, 2, 60-55*told)
			add(call{op: opRelease, who: "c", of: c}, 6, 8)
			granted.Validity.Since = at(10)
			add(call{op: opAcquire, who: "a", of: again, grant: granted}, 10, 20)
			add(call{op: opRelease, who: "a", of: again}, 30, 40)
			add(call{op: opAcquire, who: "b", of: shares("b"), err: locker.ErrHeld}, 5000, 5001)
		}},
		{"remaining", "another request was in the way", func(told int) {
			hold(0, 10)
			for i := range 3 {
				add(call{op: opAcquire, who: "b", of: asks("b", true), err: locker.ErrHeld, grant: driver.Grant{Refused: &driver.Refusal{Remaining: 1}}}, 500*i+20, 500*i+21)
				add(call{op: opAcquire, who: "c", of: asks("c", true), err: locker.ErrHeld}, 500*i+20+9*told, 500*i+30)
			}
		}},
		{"remaining", "a server has missed the holder's renewals", func(told int) {
			hold(0, 10)
			h.outages = append(h.outages, &outage{who: []string{"a", "z"}[told], some: true, fault: lost, from: at(5), to: at(9000)})
			for i := range 3 {
				add(call{op: opAcquire, who: "b", of: asks("b", true), err: locker.ErrHeld,
					grant: driver.Grant{Refused: &driver.Refusal{Remaining: 1}}}, 500*i+20, 500*i+21)
			}
		}},
		{"hold", "a renewal whose context has ended was not answered", func(told int) {
			k.sessions = true
			a := hold(0, 10)
			add(call{op: opDelete}, 20, 30)
			add(call{op: opRenew, who: "a", of: a}, 9000, 9010)
			if h.calls[2].ctxEnded = at(9009); told == 1 {
				h.calls[2].ctxEnded = time.Time{}
			}
		}},
		{"hold", "of two Holds of one that has asked again, the first is told", func(told int) {
			k.sessions = true
			a := hold(0, 10)
			again := *h.calls[0]
			add(again, 11, 12)
			a.earlier = make([]driver.Hold, 1-told)
			add(call{op: opDelete}, 20, 30)
			add(call{op: opLost, who: "a", of: a}, 31, 31)
			add(call{op: opRenew, who: "a", of: a, grant: again.grant}, 9000, 9010)
		}},
		{"hold", "votes of one that has asked again are overtaken by its release", func(told int) {
			k.g.Exclusion = locker.ExclusionQuorum
			a := hold(0, 10)
			again := *h.calls[0]
			add(again, 11, 12)
			a.earlier = make([]driver.Hold, 1-told)
			h.outages = append(h.outages, &outage{who: "a", fault: heldOpen, from: at(14), to: at(100)})
			add(call{op: opRelease, who: "a", of: a}, 20, 25)
			add(call{op: opRenew, who: "a", of: a, grant: again.grant}, 26, 27)
		}},
		{"wake", "a message meets an outage", func(told int) {
			add(call{op: opNotify, who: "b"}, 0, 1)
			a := hold(2, 3)
			add(call{op: opAcquire, who: "b", of: asks("b", true), err: locker.ErrHeld}, 4, 5)
			add(call{op: opRelease, who: "a", of: a}, 20, 21)
			h.outages = append(h.outages, &outage{who: "b", fault: silent, from: at(25 + 9000*told)})
		}},
		{"wake", "who leaves the line meanwhile does not wait for what is to be passed on", func(told int) {
			add(call{op: opNotify, who: "b"}, 0, 1)
			a := hold(2, 3)
			add(call{op: opAcquire, who: "b", of: asks("b", true), err: locker.ErrHeld}, 4, 5)
			add(call{op: opPass, who: "a", of: a, next: asks("a", false), yield: true, grant: h.calls[1].grant}, 20, 30)
			add(call{op: opLeave, who: "b"}, 29+10*told, 31+10*told)
		}},
		{"answer", "a Pass that was sent twice does not find its hold", func(told int) {
			a := hold(0, 10)
			h.outages = append(h.outages, &outage{who: "a", fault: replyLost, from: at(9000*told + 20), to: at(9000*told + 30)})
			add(call{op: opPass, who: "a", of: a, next: asks("a", false)}, 20, 35)
		}},
		{"answer", "a place in a line is not worth a long wait", func(told int) {
			add(call{op: opLeave, who: "b", err: locker.ErrUnavailable}, 0, 200-150*told)
		}},
		{"outage", "time has settled a hold, and not what would raise its token", func(told int) {
			a := hold(0, 10)
			h.outages = append(h.outages, &outage{who: "a", fault: silent, from: at(15), sure: at(15), to: at(90_000)})
			add(call{op: opRaise, who: "a", of: a, err: locker.ErrUnavailable}, 20, 30_000)
			add(call{op: opUndo, who: "a", of: a}, 31_000, 70_000-35_000*told)
		}},
		{"outage", "a session that hears replies is told unasked that another has broken the lock", func(told int) {
			k.sessions = true
			broken(hold(0, 10), []fault{held, silent}[told], 20)
		}},
		{"outage", "and that was its own", func(told int) {
			k.sessions = true
			broken(hold(0, 10), held, 20-60*told)
		}},
		{"outage", "and it is one", func(told int) {
			k.sessions = told == 0
			broken(hold(0, 10), held, 20)
		}},
		{"outage", "and nothing of it is under way", func(told int) {
			k.sessions = true
			a := hold(0, 10)
			add(call{op: opAcquire, who: "a", of: a, err: locker.ErrUnavailable}, 16-4*(1-told), 18-4*(1-told))
			broken(a, held, 20)
		}},
		{"refusal", "time has settled a hold, and a copy comes later", func(told int) {
			a := hold(0, 10)
			h.outages = append(h.outages, &outage{who: "a", fault: heldOpen, from: at(10), to: at(100_000)})
			add(call{op: opAcquire, who: "a", of: a, err: locker.ErrUnavailable, grant: h.calls[0].grant}, 11, 12)
			add(call{op: opRaise, who: "a", of: a, err: locker.ErrUnavailable}, 20, 30_000)
			add(call{op: opUndo, who: "a", of: a}, 31_000, 70_000-30_000*told)
			add(call{op: opAcquire, who: "b", of: asks("b", true), err: locker.ErrHeld}, 101_000, 101_001)
		}},
		{"state", "a holder is not told yet that it no longer waits", func(told int) {
			k.queue = true
			b := asks("b", true)
			add(call{op: opAcquire, who: "b", of: b, queued: at(1), grant: driver.Grant{Hold: struct{ driver.Hold }{}, Token: 7,
				Validity: driver.Validity{Since: at(0), TTL: time.Minute}}}, 0, 4000)
			add(call{op: opInspect, who: "c", state: locker.State{Name: "x", Held: true, Token: 7 - uint64(told)}}, 2000, 2010)
		}},
		{"answer", "who took as long as a lease lasts could not be granted one", func(told int) {
			add(call{op: opAcquire, who: "b", of: asks("b", false), err: locker.ErrUnavailable}, 0, 60_000-55_000*told)
		}},
		{"answer", "one is broken who is just being told that it holds", func(told int) {
			k.queue = true
			add(call{op: opBreak, who: "b"}, 100*told, 100*told+10)
			add(call{op: opAcquire, who: "a", of: asks("a", true), err: locker.ErrUnavailable}, 5, 15)
		}},
		{"answer", "a State of nobody may be refused by Break, which the engine does not hand on", func(told int) {
			saw := &call{op: opInspect, who: "b", name: "x", state: locker.State{Name: "x", Held: told == 1}}
			add(call{op: opBreak, who: "b", seen: saw, err: locker.ErrInvalid}, 0, 1)
		}},
		{"close", "a wait without a queue may be refused at any time", func(told int) {
			k.queue = told == 1
			add(call{op: opAcquire, who: "b", of: asks("b", true), err: locker.ErrHeld, queued: at(2)}, 1, 12)
			add(call{op: opClose, who: "b"}, 11, 13)
		}},
		{"close", "who is told of Close may be told that the lock is held, too", func(told int) {
			k.queue = true
			also := []error{locker.ErrClosed, context.Canceled}[told]
			add(call{op: opAcquire, who: "b", of: asks("b", true), err: fmt.Errorf("%w: %w", locker.ErrHeld, also), queued: at(2)}, 1, 12)
			add(call{op: opClose, who: "b"}, 11, 13)
		}},
		{"close", "a context ends just after Close", func(told int) {
			k.queue = true
			ends := at(14 + 500*told)
			add(call{op: opAcquire, who: "b", of: asks("b", true), err: fmt.Errorf("%w: %w", locker.ErrHeld, context.Canceled),
				queued: at(2), ctxEnded: ends}, 1, 15+500*told)
			add(call{op: opClose, who: "b"}, 11, 13)
		}},
	} {
		for told := range 2 {
			r := newRecorder(t.Context(), t.Name())
			k = newKit(r, Harness{New: func(T) driver.Backend { return memlock.New(false) }, TTL: time.Minute}, false, &facts{})
			h = k.history()
			c.play(told)
			found := k.judgeAll(h)
			assert.Len(t, slices.DeleteFunc(found, func(v violation) bool { return v.rule.name != c.rule }), told, c.what)
			r.Close()
		}
	}
}

// What a fault wakes meets it while it is being set, on a machine that is slow.
func TestACallMeetsAFaultWhileThatIsSet(t *testing.T) {
	r := newRecorder(t.Context(), t.Name())
	defer r.Close()
	k := newKit(r, Harness{New: func(T) driver.Backend { return memlock.New(false) }, TTL: time.Minute}, false, &facts{})
	h := k.history()
	h.line(&spy{who: "a", line: meets(func() {
		a := h.attempt("a", driver.Request{Name: "x", TTL: time.Minute})
		h.add(&call{op: opAcquire, who: "a", name: "x", of: a, err: locker.ErrUnavailable}).ended = time.Now()
	})}, reset)
	assert.Empty(t, k.judgeAll(h.copy()))
}

// meets is called while it is set.
type meets func()

func (m meets) Requests(Mode) { m() }
func (m meets) Replies(Mode)  {}
func (m meets) Sent() int64   { return 0 }

type undone struct {
	driver.Hold
	is bool
}

func (u *undone) Undo(context.Context) error {
	u.is = true
	return nil
}

// Who asks again as the same owner gets a Hold for each request: in a quorum, each knows of its own votes alone.
func TestEachHoldOfOneWhoAskedAgainIsEnded(t *testing.T) {
	r := newRecorder(t.Context(), t.Name())
	defer r.Close()
	k := newKit(r, Harness{New: func(T) driver.Backend { return memlock.New(false) }, TTL: time.Minute}, false, &facts{})
	p := &player{k: k, t: r, h: k.history()}
	s := newSpy(memlock.New(false), "a", p.h, nil, k.patience)
	a := p.h.attempt(s.who, driver.Request{Name: "x", TTL: time.Minute})
	var first, second undone
	s.seen(a, driver.Grant{Hold: &first})
	s.seen(a, driver.Grant{Hold: &second})
	p.endOne(t.Context(), s, a, 0)
	assert.True(t, first.is && second.is)
}

// Not only in virtual time, where what happens to servers takes the place of other scripts.
func TestEachOperationMeetsEachFaultBeforeAnyMeetsOneTwice(t *testing.T) {
	h := Harness{New: func(T) driver.Backend { return memlock.New(false) }, Restart: func(T) {},
		Cut: func(T) (driver.Backend, Fault) { return memlock.New(false), nil }}
	r := newRecorder(t.Context(), t.Name())
	defer r.Close()
	for _, virtual := range []bool{false, true} {
		k := newKit(r, h, virtual, &facts{})
		groups, of := k.cells(), map[string]int{}
		for i, group := range groups {
			for _, c := range group {
				of[c.String()] = i
			}
		}
		for seed := range uint64(3) {
			met := map[int]bool{}
			for n := range specials + 2*len(groups) {
				if i, is := of[k.script(groups, seed, n).what]; is {
					met[i] = true
				}
			}
			assert.Len(t, met, len(groups), "virtual %v", virtual)
		}
	}
}

type recovering struct {
	driver.Backend
	failures int
}

func (b *recovering) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	if b.failures--; b.failures >= 0 {
		return driver.Grant{}, fmt.Errorf("%w: connection closed", locker.ErrUnavailable)
	}
	if len(req.Name) > locker.MaxNameLen {
		return driver.Grant{}, locker.ErrInvalid
	}
	return b.Backend.Acquire(ctx, req)
}

// The check before may have taken the servers away, or moved their clocks.
func TestHistoriesBeginWhenAServiceHasRecovered(t *testing.T) {
	for failures, want := range map[int]int{3: 0, 600: 0, 1 << 30: 1} {
		synctest.Test(t, func(t *testing.T) {
			r := newRecorder(t.Context(), t.Name())
			defer r.Close()
			_ = r.Do(func() {
				newKit(r, Harness{New: func(T) driver.Backend { return &recovering{memlock.New(false), failures} }}, true, &facts{})
			})
			assert.Len(t, r.Failures(), want)
		})
	}
}
