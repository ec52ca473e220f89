package conformance_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/golockers/locker/conformance"
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
			told, _ := conformance.Histories(t, freshSim(none, k), uint64(time.Now().UnixNano()), 1500)
			assert.Empty(t, told)
		})
	}
}

func TestBrokenBackendsBreakARule(t *testing.T) {
	done := map[broken]bool{}
	for _, b := range brokenBackends {
		one := broken{flaw: b.flaw, kind: b.kind}
		if done[one] {
			continue
		}
		done[one] = true
		t.Run(b.kind.name+"/"+string(b.flaw), func(t *testing.T) {
			told, rule := conformance.Histories(t, freshSim(b.flaw, b.kind), uint64(time.Now().UnixNano()), 1500)
			assert.NotEmpty(t, told)
			t.Log(rule, told)
		})
	}
}
