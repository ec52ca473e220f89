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
	if err := h.validate(); err != nil {
		t.Fatal("conformance: ", err)
	}
	var unproven []string
	for _, c := range Checks() {
		t.Run(c.Name, func(t *testing.T) {
			r := Prove(t.Context(), h, c)
			for _, line := range r.Log {
				t.Log(line)
			}
			switch r.Outcome {
			case Failed:
				t.Error(strings.Join(r.Failures, "\n"))
			case Unclaimed:
				t.Skip("not claimed: " + r.Reason)
			case Unproven:
				unproven = append(unproven, c.Name+": "+r.Reason)
				t.Skip("UNPROVEN CLAIM: " + c.Promise + " " + r.Reason)
			}
		})
	}
	for _, u := range unproven {
		t.Log("UNPROVEN CLAIM: " + u)
	}
}

// Outcome is how a check ended.
type Outcome int

// Outcomes.
const (
	Passed    Outcome = iota
	Failed            // the promise is broken, or could not be proven and no reason was given
	Unclaimed         // the backend does not promise it
	Unproven          // the backend promises it, and the harness says why it cannot be proven
)

// String returns the outcome in a word.
func (o Outcome) String() string {
	names := []string{"passed", "failed", "unclaimed", "unproven"}
	if o < 0 || int(o) >= len(names) {
		return fmt.Sprintf("unknown(%d)", int(o))
	}
	return names[o]
}

// Result is what came of a check.
type Result struct {
	Check    Check
	Outcome  Outcome
	Reason   string   // of Unclaimed and Unproven
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
// part of the TTL proves nothing, and is run again, at most twice.
func Prove(ctx context.Context, h Harness, c Check) Result {
	began := time.Now()
	r := Result{Check: c}
	if err := h.validate(); err != nil {
		r.Outcome, r.Failures = Failed, []string{err.Error()}
		return r
	}
	for try := 1; ; try++ {
		stalls := watchStalls()
		rec := runWatched(ctx, h, c)
		stalled := stalls.stop()
		r.Outcome, r.Reason, r.Failures = rec.outcome, rec.reason, rec.failures
		r.Log = append(r.Log, rec.log...)
		if r.Outcome != Failed || stalled < h.ttlOrDefault()/4 || ctx.Err() != nil {
			break
		}
		r.Log = append(r.Log, fmt.Sprintf("try %d of %d failed, and the machine stalled for %v meanwhile", try, tries, stalled))
		if try == tries {
			break
		}
		r.Log = append(r.Log, rec.failures...)
	}
	r.Took = time.Since(began)
	return r
}
