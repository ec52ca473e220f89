package conformance

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/golockers/locker/internal/stall"
)

// Run runs every check as a subtest of its name, and then plays histories: as [RunVirtual] if the
// harness says that it can, otherwise as [RunHistories] if [HistoriesEnv] asks for it. A check
// that fails says which promise is broken, what was seen, and what the probable cause is. One
// that hangs fails with the stacks of all goroutines, and the others go on.
//
// Checks that a backend does not claim are skipped; those that it claims and
// that lack a hook fail. Goroutines that a check leaves behind are failures,
// so nothing else should be running at the same time: do not call t.Parallel.
func Run(t *testing.T, h Harness) {
	t.Helper()
	run(t, h, allChecks())
	t.Run("histories", func(t *testing.T) {
		if why := h.Unproven["histories"]; why != "" {
			t.Skip("UNPROVEN: " + why)
		}
		if h.Virtual != nil {
			RunVirtual(t, h.Virtual)
			return
		}
		budget, err := time.ParseDuration(os.Getenv(HistoriesEnv))
		if err != nil || budget <= 0 {
			t.Skip("histories on a real service are played for as long as " + HistoriesEnv + " says, such as 20s: " +
				"on a busy machine, and while servers elect, some of their rules still raise false alarms")
		}
		RunHistories(t, h, budget)
	})
}

// HistoriesEnv is the environment variable that says for how long [Run] plays histories on a
// real service.
const HistoriesEnv = "CONFORMANCE_HISTORIES"

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

// ErrUnproven says that a backend makes a promise which its harness has no means to prove.
var ErrUnproven = errors.New("claimed, and not proven")

// Check is Run, or with names RunOnly, for programs that are not go test. It returns nil if
// every promise that the backend makes is proven, and otherwise an error that says which
// promises are broken, and, matching [ErrUnproven], which the harness cannot prove.
func Check(ctx context.Context, h Harness, names ...string) error {
	checks, err := named(names)
	if err != nil {
		return err
	}
	var p prover
	var errs []error
	for _, c := range checks {
		switch r := p.prove(ctx, h, c); r.Outcome {
		case failed:
			errs = append(errs, fmt.Errorf("%s: %s", c.Name, strings.Join(r.Failures, "; ")))
		case unproven:
			errs = append(errs, fmt.Errorf("%s: %w: %s", c.Name, ErrUnproven, r.Reason))
		case passed, unclaimed:
		}
	}
	return errors.Join(errs...)
}

func run(t *testing.T, h Harness, checks []check) {
	t.Helper()
	if err := h.validate(); err != nil {
		t.Fatal("conformance: ", err)
	}
	var p prover
	var open, broken []string
	for _, c := range checks {
		t.Run(c.Name, func(t *testing.T) {
			r := p.prove(t.Context(), h, c)
			for _, line := range r.Log {
				t.Log(line)
			}
			switch r.Outcome {
			case failed:
				if len(broken) > 0 {
					r.Failures = append(r.Failures,
						"this may follow from what was broken before: "+strings.Join(broken, ", "))
				}
				broken = append(broken, c.Name)
				t.Error(strings.Join(r.Failures, "\n"))
			case unclaimed:
				t.Skip("not claimed: " + r.Reason)
			case unproven:
				open = append(open, "UNPROVEN CLAIM: "+c.Name+": "+r.Reason)
				t.Skip("UNPROVEN CLAIM: " + c.Promise + " " + r.Reason)
			}
		})
	}
	for _, o := range open {
		t.Log(o)
	}
}

// outcome is how a check ended.
type outcome int

const (
	passed    outcome = iota
	failed            // the promise is broken, or could not be proven and no reason was given
	unclaimed         // the backend does not promise it
	unproven          // the backend promises it, and the harness says why it cannot be proven, or cannot
)

// String returns the outcome in a word.
func (o outcome) String() string {
	return [...]string{"passed", "failed", "unclaimed", "unproven"}[o]
}

// result is what came of a check.
type result struct {
	Check    check
	Outcome  outcome
	Reason   string   // of unclaimed and unproven
	Failures []string // of failed
	Log      []string
	Took     time.Duration
}

// tries is how often a check is run at most if the machine stalls meanwhile.
const tries = 3

// prover proves one check after the other, and remembers what it has told.
type prover struct {
	leaks    toldLeaks
	measured measured
	watch    func() (stop func() time.Duration) // for stalls; nil: stall.Longest
}

// prove runs one check. It returns when the check and its clean-ups have ended, or its
// watchdog has given up.
//
// A check that fails while the machine did not run its goroutines for a good part of the
// TTL may be right. It is run again, at most twice, each time with twice the TTL, and has
// failed if it fails each time: a stall explains a failure, and never hides one.
func (p *prover) prove(ctx context.Context, h Harness, c check) result {
	began := time.Now()
	r := result{Check: c}
	if err := h.validate(); err != nil {
		r.Outcome, r.Failures = failed, []string{err.Error()}
		return r
	}
	h.TTL = h.ttlOrDefault()
	for try := 1; ; try++ {
		watch := p.watch
		if watch == nil {
			watch = stall.Longest
		}
		stop := watch()
		tried := p.runWatched(ctx, h, c)
		stalled := stop()
		r.Outcome, r.Reason, r.Failures = tried.Outcome, tried.Reason, tried.Failures
		r.Log = append(r.Log, tried.Log...)
		if r.Outcome != failed || stalled < h.TTL/4 || ctx.Err() != nil {
			break
		}
		r.Log = append(r.Log, fmt.Sprintf("try %d of %d failed, and the machine stalled for %v meanwhile",
			try, tries, stalled))
		if try == tries {
			r.Failures = append(r.Failures, fmt.Sprintf("the machine stalled in each of %d tries, at "+
				"last for %v with a TTL of %v: run it again on one that is less busy", tries, stalled, h.TTL))
			break
		}
		r.Log = append(r.Log, tried.Failures...)
		h.TTL *= 2
	}
	r.Took = time.Since(began)
	return r
}
