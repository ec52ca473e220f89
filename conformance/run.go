package conformance

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"
)

// Run runs every check as a subtest of its name. A check that fails says which
// promise is broken, what was seen, and what the probable cause is. One that
// hangs fails with the stacks of all goroutines, and the others go on.
//
// Checks that a backend does not claim are skipped; those that it claims and
// that lack a hook fail. Goroutines that a check leaves behind are failures,
// so nothing else should be running at the same time: do not call t.Parallel.
func Run(t *testing.T, h Harness) {
	t.Helper()
	run(t, h, Checks())
}

// RunOnly is Run of the checks with these names. It is for a further deployment
// of a service that has passed all of them: its other checks would prove once
// more what does not change with the deployment.
func RunOnly(t *testing.T, h Harness, names ...string) {
	t.Helper()
	checks, err := named(names)
	if err != nil {
		t.Fatal("conformance: ", err)
	}
	run(t, h, checks)
}

func run(t *testing.T, h Harness, checks []Check) {
	t.Helper()
	if err := h.validate(); err != nil {
		t.Fatal("conformance: ", err)
	}
	var p prover
	var open, failed []string
	for _, c := range checks {
		t.Run(c.Name, func(t *testing.T) {
			r := p.prove(t.Context(), h, c)
			for _, line := range r.Log {
				t.Log(line)
			}
			switch r.Outcome {
			case Failed:
				if len(failed) > 0 {
					r.Failures = append(r.Failures, "this may follow from what was broken before: "+strings.Join(failed, ", "))
				}
				failed = append(failed, c.Name)
				t.Error(strings.Join(r.Failures, "\n"))
			case Unclaimed:
				t.Skip("not claimed: " + r.Reason)
			case Unproven:
				open = append(open, "UNPROVEN CLAIM: "+c.Name+": "+r.Reason)
				t.Skip("UNPROVEN CLAIM: " + c.Promise + " " + r.Reason)
			case Inconclusive:
				open = append(open, "INCONCLUSIVE: "+c.Name+": "+r.Reason)
				t.Skip("INCONCLUSIVE: " + r.Reason)
			}
		})
	}
	for _, o := range open {
		t.Log(o)
	}
}

// Outcome is how a check ended.
type Outcome int

// Outcomes.
const (
	Passed       Outcome = iota
	Failed               // the promise is broken, or could not be proven and no reason was given
	Unclaimed            // the backend does not promise it
	Unproven             // the backend promises it, and the harness says why it cannot be proven, or cannot
	Inconclusive         // the machine stalled in every try, which proves nothing
)

// String returns the outcome in a word.
func (o Outcome) String() string {
	names := []string{"passed", "failed", "unclaimed", "unproven", "inconclusive"}
	if o < 0 || int(o) >= len(names) {
		return fmt.Sprintf("unknown(%d)", int(o))
	}
	return names[o]
}

// Result is what came of a check.
type Result struct {
	Check    Check
	Outcome  Outcome
	Reason   string   // of Unclaimed, Unproven and Inconclusive
	Failures []string // of Failed
	Log      []string
	Took     time.Duration
}

// tries is how often a check is run at most if the machine stalls meanwhile.
const tries = 3

// Prove runs one check, for programs that are not go test. It returns when
// the check and its clean-ups have ended, or its watchdog has given up.
//
// A check that fails while the machine did not run its goroutines for a good
// part of the TTL proves nothing. It is run again, at most twice, each time with
// twice the TTL, and is Inconclusive if the machine stalls each time.
func Prove(ctx context.Context, h Harness, c Check) Result { return new(prover).prove(ctx, h, c) }

// prover proves one check after the other, and remembers what it has told.
type prover struct {
	leaks toldLeaks
	watch func() (stop func() time.Duration) // for stalls; nil: watchStalls
}

func (p *prover) prove(ctx context.Context, h Harness, c Check) Result {
	began := time.Now()
	r := Result{Check: c}
	if err := h.validate(); err != nil {
		r.Outcome, r.Failures = Failed, []string{err.Error()}
		return r
	}
	h.TTL = h.ttlOrDefault()
	for try := 1; ; try++ {
		watch := p.watch
		if watch == nil {
			watch = watchStalls
		}
		stop := watch()
		rec := p.runWatched(ctx, h, c)
		stalled := stop()
		r.Outcome, r.Reason, r.Failures = rec.outcome, rec.reason, rec.failures
		r.Log = append(r.Log, rec.log...)
		if r.Outcome != Failed || stalled < h.TTL/4 || ctx.Err() != nil {
			break
		}
		r.Log = append(r.Log, fmt.Sprintf("try %d of %d failed, and the machine stalled for %v meanwhile", try, tries, stalled))
		if try == tries {
			r.Outcome, r.Reason = Inconclusive, fmt.Sprintf("the machine stalled in each of %d tries, at last for %v with a TTL of %v: run it again on one that is less busy", tries, stalled, h.TTL)
			break
		}
		r.Log = append(r.Log, rec.failures...)
		h.TTL *= 2
	}
	r.Took = time.Since(began)
	return r
}
