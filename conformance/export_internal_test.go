package conformance

import "context"

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

func Checks() []OneCheck { return allChecks() }

func Prove(ctx context.Context, h Harness, c OneCheck) Result { return new(prover).prove(ctx, h, c) }
