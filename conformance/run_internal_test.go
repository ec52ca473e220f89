package conformance

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/golockers/locker"
	"github.com/golockers/locker/memory"
)

// A stalled machine proves nothing, neither for a backend nor against it.
func TestCheckThatFailsOnAStalledMachineIsInconclusive(t *testing.T) {
	h := Harness{New: func(T) locker.Backend { return memory.New() }, TTL: 100 * time.Millisecond}
	var ttls []time.Duration
	broken := check{Name: "broken", Promise: "Nothing.", Once: true, run: func(s *trial) {
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
	}{{0, failed, 1}, {1, failed, 2}, {3, inconclusive, 3}} {
		stalled, ttls = c.stalled, nil
		r := p.prove(t.Context(), h, broken)
		assert.Equal(t, c.want, r.Outcome)
		assert.Equal(t, []time.Duration{h.TTL, 2 * h.TTL, 4 * h.TTL}[:c.ttls], ttls, "each try has more time")
		if c.want == inconclusive {
			assert.Contains(t, r.Reason, "the machine stalled in each of 3 tries")
		}
	}
}

func TestLeakIsToldOnce(t *testing.T) {
	h := Harness{New: func(T) locker.Backend { return memory.New() }}
	end := make(chan struct{})
	defer close(end)
	leaking := check{Name: "leaking", Promise: "Nothing.", run: func(*trial) { go func() { <-end }() }}
	// No stalls: each would be another try.
	p := prover{watch: func() func() time.Duration { return func() time.Duration { return 0 } }}
	first, second := p.prove(t.Context(), h, leaking), p.prove(t.Context(), h, leaking)
	assert.Equal(t, failed, first.Outcome)
	assert.Equal(t, passed, second.Outcome)
	assert.Contains(t, second.Log,
		"check leaking leaves goroutines behind, too, of the kind that was told of before")
}
