package conformance

import (
	"context"
	"strings"
	"testing"
)

// What the suite's own tests see of a check.
type (
	OneCheck = check
	Outcome  = outcome
	Result   = result
)

const (
	Passed    = passed
	Failed    = failed
	Unclaimed = unclaimed
	Unproven  = unproven
)

func Checks() []OneCheck { return allChecks(subject{}) }

func Prove(ctx context.Context, h Harness, c OneCheck) Result { return new(prover).prove(ctx, h, c) }

// Histories plays scripts in virtual time, and returns what is broken; "": nothing. 0 is the seed of [SeedEnv].
func Histories(t *testing.T, fresh func(T) Harness, seed uint64, scripts int) (told, rule string) {
	only := -1
	if seed == 0 {
		seed, only = seedOf()
	}
	b := checkVirtual(t, fresh, seed, only, scripts)
	if b == nil {
		return "", ""
	}
	rule = "said"
	if strings.Contains(strings.Join(b.more, ""), "no goroutine of a backend is left") {
		rule = "goroutines"
	}
	if len(b.found) > 0 {
		rule = b.found[0].rule.name
	}
	return b.tell(seed, t.Name()), rule
}

// Rules are the names of all.
func Rules() (names []string) {
	for _, r := range rules {
		names = append(names, r.name)
	}
	return names
}
