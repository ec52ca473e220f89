package conformance_test

import (
	"os"
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
	scripts := 500
	if os.Getenv(lab.ProveEnv) == "1" {
		scripts = 3000
	}
	for _, k := range []kind{poor, hasty, rich, queued, tokenless, watched, aged} {
		t.Run(k.name, func(t *testing.T) {
			told, _ := conformance.Histories(t, freshSim(none, k), 0, scripts)
			assert.Empty(t, told)
		})
	}
}

// In `make search`, with five seeds; a rule that nothing breaks proves nothing.
func TestBrokenBackendsBreakARule(t *testing.T) {
	seeds := uint64(1)
	if os.Getenv(lab.ProveEnv) == "1" {
		seeds = 5
	}
	seen := map[string]bool{}
	for _, f := range flaws {
		for _, k := range f.kinds {
			if f.byHand {
				continue
			}
			t.Run(k.name+"/"+f.what, func(t *testing.T) {
				for seed := range seeds {
					told, rule := conformance.Histories(t, freshSim(f, k), seed+2, 12_000)
					assert.NotEmpty(t, told)
					assert.NotEqual(t, "said", rule, told)
					seen[rule] = true
				}
			})
		}
	}
	for _, rule := range conformance.Rules() {
		assert.True(t, seen[rule] || seeds == 1, "nothing shows that rule %s can be broken", rule)
	}
}
