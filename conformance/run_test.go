package conformance_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/conformance"
)

// A *testing.T is a T, so that a check can be run by hand.
var _ conformance.T = (*testing.T)(nil)

// proveWith runs a check against the good service, with a harness that was
// tampered with.
func proveWith(t *testing.T, k kind, check string, change func(*conformance.Harness)) (r conformance.Result) {
	t.Helper()
	inVirtualTime(t, func(t *testing.T) {
		s := newService(none)
		h := s.harness(k, time.Second)
		change(&h)
		r = conformance.Prove(t.Context(), h, checkNamed(t, check))
		close(s.end)
		time.Sleep(2 * time.Hour)
	})
	return r
}

func TestClaimWithoutItsHookFails(t *testing.T) {
	for _, c := range []struct {
		kind   kind
		check  string
		hook   string
		remove func(*conformance.Harness)
	}{
		{poor, "close-cut-off", "Cut", func(h *conformance.Harness) { h.Cut = nil }},
		{poor, "dead-holder", "Cut", func(h *conformance.Harness) { h.Cut = nil }},
		{queued, "dead-holder", "Victim", func(h *conformance.Harness) { h.Victim = nil }},
		{poor, "deletion", "Delete", func(h *conformance.Harness) { h.Delete = nil }},
		{rich, "restart", "Restart", func(h *conformance.Harness) { h.Restart = nil }},
		{rich, "failover", "Failover", func(h *conformance.Harness) { h.Failover = nil }},
		{rich, "server-crashes", "Crash", func(h *conformance.Harness) { h.Crash = nil }},
		{rich, "clock-jump", "JumpClock", func(h *conformance.Harness) { h.JumpClock = nil }},
	} {
		t.Run(c.check, func(t *testing.T) {
			r := proveWith(t, c.kind, c.check, c.remove)
			require.Equal(t, conformance.Failed, r.Outcome)
			assert.Contains(t, r.Failures[0], "no hook "+c.hook)

			r = proveWith(t, c.kind, c.check, func(h *conformance.Harness) {
				c.remove(h)
				h.Unproven = map[string]string{c.check: "it is far away"}
			})
			assert.Equal(t, conformance.Unproven, r.Outcome)
			assert.Equal(t, "it is far away", r.Reason)
		})
	}
}

func TestUnprovenDoesNotExcuseAHookThatIsThere(t *testing.T) {
	excuse := func(h *conformance.Harness) { h.Unproven = map[string]string{"close-cut-off": "I would rather not"} }
	assert.Equal(t, conformance.Passed, proveWith(t, poor, "close-cut-off", excuse).Outcome)
}

func TestWhatIsNotClaimedIsNotProven(t *testing.T) {
	for _, c := range []struct {
		kind  kind
		check string
	}{{poor, "restart"}, {poor, "failover"}, {poor, "server-crashes"}, {poor, "clock-jump"}, {poor, "prompt"}} {
		r := proveWith(t, c.kind, c.check, func(*conformance.Harness) {})
		assert.Equal(t, conformance.Unclaimed, r.Outcome, c.check)
		assert.NotEmpty(t, r.Reason, c.check)
	}
	for _, k := range []kind{poor, rich, queued} {
		for _, c := range conformance.Checks() {
			if r := prove(t, none, k, c); r.Outcome == conformance.Unclaimed {
				assert.Contains(t, []string{"restart", "failover", "server-crashes", "clock-jump", "prompt"}, c.Name)
			}
		}
	}
}

func TestHarnessThatMakesNoSenseIsRefused(t *testing.T) {
	for seen, change := range map[string]func(*conformance.Harness){
		"has no New":         func(h *conformance.Harness) { h.New = nil },
		"Harness.TTL is -1s": func(h *conformance.Harness) { h.TTL = -time.Second },
		"no Openers":         func(h *conformance.Harness) { h.Open = nil },
		`names "cutoff"`: func(h *conformance.Harness) {
			h.Unproven = map[string]string{"cutoff": "a typing error"}
		},
		`no reason for "close"`: func(h *conformance.Harness) { h.Unproven = map[string]string{"close": " "} },
		"a nil Backend": func(h *conformance.Harness) {
			h.New = func(conformance.T) locker.Backend { return nil }
		},
	} {
		r := proveWith(t, poor, "close", change)
		assert.Equal(t, conformance.Failed, r.Outcome)
		assert.Contains(t, strings.Join(r.Failures, "\n"), seen)
	}
}

func TestCheckThatHangsFailsWithStacks(t *testing.T) {
	var end chan struct{}
	r := proveWith(t, poor, "exclusion", func(h *conformance.Harness) {
		end = make(chan struct{})
		h.New = func(conformance.T) locker.Backend {
			hangsHere(end)
			return nil
		}
		time.AfterFunc(time.Hour, func() { close(end) })
	})
	require.Equal(t, conformance.Failed, r.Outcome)
	assert.Contains(t, r.Failures[0], "did not end within")
	assert.Contains(t, r.Failures[0], "hangsHere")
	assert.Less(t, r.Took, 10*time.Minute)
}

func hangsHere(end chan struct{}) { <-end }

func TestCheckOrHookThatPanicsOrGivesUpFails(t *testing.T) {
	r := proveWith(t, poor, "deletion", func(h *conformance.Harness) {
		h.Delete = func(conformance.T, string) { panic("no such table") }
	})
	require.Equal(t, conformance.Failed, r.Outcome)
	assert.Contains(t, r.Failures[0], "panic: no such table")

	r = proveWith(t, poor, "deletion", func(h *conformance.Harness) {
		h.Delete = func(t conformance.T, _ string) { t.FailNow() }
	})
	require.Equal(t, conformance.Failed, r.Outcome)
	assert.Contains(t, r.Failures[0], "did not say why")
}

func TestKnownGoroutinesAreNoLeaks(t *testing.T) {
	leak := func(h *conformance.Harness) {
		end := make(chan struct{})
		create := h.New
		h.New = func(t conformance.T) locker.Backend {
			go hangsHere(end)
			return create(t)
		}
		time.AfterFunc(time.Hour, func() { close(end) })
	}
	r := proveWith(t, poor, "exclusion", leak)
	require.Equal(t, conformance.Failed, r.Outcome)
	assert.Contains(t, r.Failures[0], "hangsHere")
	r = proveWith(t, poor, "exclusion", func(h *conformance.Harness) {
		leak(h)
		h.KnownGoroutines = []string{"github.com/golockers/locker/conformance_test.hangsHere"}
	})
	assert.Equal(t, conformance.Passed, r.Outcome, "%v", r.Failures)
}

func TestCleanUpsRunInReverseUnderAnEndedContext(t *testing.T) {
	var order []string
	r := proveWith(t, poor, "claims", func(h *conformance.Harness) {
		create := h.New
		first := true
		h.New = func(t conformance.T) locker.Backend {
			if first {
				first = false
				for _, name := range []string{"first", "second"} {
					t.Cleanup(func() {
						order = append(order, name)
						assert.ErrorIs(t, t.Context().Err(), context.Canceled)
					})
				}
			}
			return create(t)
		}
	})
	assert.Equal(t, conformance.Passed, r.Outcome, "%v", r.Failures)
	assert.Equal(t, []string{"second", "first"}, order)
}

func TestManyFailuresOfOneCheckAreCutShort(t *testing.T) {
	r := prove(t, vagueRefusal, poor, checkNamed(t, "exclusion"))
	assert.LessOrEqual(t, len(r.Failures), 6)
	assert.Contains(t, r.Failures[len(r.Failures)-1], "more failures")
}

func TestCheckOutsideOfGoTest(t *testing.T) {
	check := func(f flaw, names ...string) (err error) {
		inVirtualTime(t, func(t *testing.T) {
			s := newService(f)
			err = conformance.Check(t.Context(), s.harness(poor, time.Second), names...)
			close(s.end)
			time.Sleep(time.Minute)
		})
		return err
	}
	require.NoError(t, check(none, "exclusion", "restart"), "what is not claimed is not broken")
	require.ErrorContains(t, check(vagueRefusal, "names", "exclusion"), "exclusion: broken promise: ")
	require.ErrorContains(t, check(none, "nonsense"), `there is no check "nonsense"`)
}

func TestCheckNamesAndPromisesReadWell(t *testing.T) {
	seen := make(map[string]bool)
	for _, c := range conformance.Checks() {
		assert.Regexp(t, `^[a-z]+(-[a-z]+)*$`, c.Name)
		assert.False(t, seen[c.Name], "two checks are called %s", c.Name)
		seen[c.Name] = true
		assert.Regexp(t, `^[A-Z].*[.]$`, c.Promise)
	}
}
