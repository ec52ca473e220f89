package conformance_test

import (
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/golockers/locker/conformance"
	"github.com/golockers/locker/internal/lab"
)

// freshSim is the simulated service with a flaw, new for each script.
func freshSim(f flaw, k kind) func(conformance.T) conformance.Harness {
	return func(t conformance.T) conformance.Harness {
		s := newService(f)
		t.Cleanup(func() { close(s.end) })
		return s.harness(k, time.Second)
	}
}

func TestGoodBackendsKeepEveryRule(t *testing.T) {
	for _, k := range []kind{poor, hasty, rich, queued, tokenless} {
		t.Run(k.name, func(t *testing.T) {
			told, _ := conformance.Histories(t, freshSim(none, k), 0, 1500)
			assert.Empty(t, told)
		})
	}
}

// byHand are flaws that no history shows, or that need what only a check has.
var byHand = []flaw{claimsEverything, claimsByMood, claimsAsk, claimsNonsense, opensAnother, opensFirst, closesUsers,
	pilesUp, deathUnnoticed, cutsOwner, comparesOwner32, endOfOwner, refusesOwner}

// In `make prove`, with five seeds; a rule that nothing breaks proves nothing.
func TestBrokenBackendsBreakARule(t *testing.T) {
	seeds := uint64(1)
	if os.Getenv(lab.ProveEnv) == "1" {
		seeds = 5
	}
	seen := map[string]bool{}
	done := map[broken]bool{}
	for _, b := range brokenBackends {
		one := broken{flaw: b.flaw, kind: b.kind}
		if done[one] || slices.Contains(byHand, b.flaw) {
			continue
		}
		done[one] = true
		t.Run(b.kind.name+"/"+string(b.flaw), func(t *testing.T) {
			for seed := range seeds {
				told, rule := conformance.Histories(t, freshSim(b.flaw, b.kind), seed+2, 3000)
				assert.NotEmpty(t, told)
				assert.NotEqual(t, "said", rule, told)
				seen[rule] = true
			}
		})
	}
	for _, rule := range conformance.Rules() {
		assert.True(t, seen[rule] || seeds == 1, "nothing shows that rule %s can be broken", rule)
	}
}
