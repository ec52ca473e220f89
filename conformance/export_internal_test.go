package conformance

import (
	"cmp"
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
	p, err := planned(t.Name(), false)
	if err != nil {
		t.Fatal(err)
	}
	if seed != 0 {
		p.seed, p.only = seed, -1
	}
	found := checkVirtual(t, fresh, p, scripts, 1)
	if len(found.all) == 0 {
		return "", ""
	}
	rule = cmp.Or(found.all[0].rule(), "said")
	if strings.Contains(strings.Join(found.all[0].more, ""), "no goroutine of a backend is left") {
		rule = "goroutines"
	}
	return p.tell(found), rule
}

// Rules are the names of all.
func Rules() (names []string) {
	for _, r := range rules {
		names = append(names, r.name)
	}
	return names
}
