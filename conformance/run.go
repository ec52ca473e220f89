package conformance

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/stall"
)

// Run runs every check as a subtest of its name, and plays histories: scripts of several clients and
// faults, drawn from a seed that is printed (in virtual time, if the harness says how). A failing check
// says which promise is broken, what was seen, and what the probable cause is. A check that hangs fails
// with the stacks of all goroutines, and the others continue.
//
// Checks of what a backend does not claim are skipped; checks of its claims that lack a hook fail. A
// goroutine left behind by a check is a failure, so nothing else should run at the same time: do not
// call t.Parallel.
func Run(t *testing.T, h Harness) {
	t.Helper()
	h = h.calibrated(t.Context())
	all := allChecks(subject{})
	last := len(all) - 1 // "many": what a service keeps of thousands of names would slow the histories
	run(t, all[:last], onService(h))
	runHistories(t, h)
	run(t, all[last:], onService(h))
}

// histories is the name of the subtest that plays them.
const histories = "histories"

func runHistories(t *testing.T, h Harness) {
	t.Helper()
	t.Run(histories, func(t *testing.T) {
		if why := h.Unproven[histories]; why != "" {
			t.Skip("UNPROVEN: " + why)
		}
		if h.Virtual != nil {
			playVirtual(t, h.Virtual)
			return
		}
		p, err := planned(t.Name(), testing.Short())
		if err != nil {
			t.Fatal(err)
		}
		p.deadline, _ = t.Deadline()
		t.Logf("%s=%d", SeedEnv, p.seed)
		found, log := checkReal(t.Context(), h, p)
		for _, line := range log {
			t.Log(line)
		}
		if len(found.all) > 0 {
			t.Error(p.tell(found))
		}
	})
}

// HistoriesEnv is the environment variable that says how long histories are played on a real service,
// such as 60s. Without it they take some 20 seconds; with go test -short, at least 8. If the required
// scripts take longer on a service, they get that time. Server events come in addition, for up to a
// minute in all.
const HistoriesEnv = "CONFORMANCE_HISTORIES"

// beginning is how long new scripts begin. The last ones take some time.
func beginning(short bool) time.Duration {
	if all, err := time.ParseDuration(os.Getenv(HistoriesEnv)); err == nil && all >= 0 {
		return all * 3 / 5
	} else if short {
		return 8 * time.Second
	}
	return 12 * time.Second
}

// RunOnly is Run for the checks with these names, one of which may be "histories". Histories are also
// played if they alone prove one of the others, such as "deletion". It is for another deployment of a
// service that has passed all checks: the rest would only prove again what does not depend on the
// deployment.
func RunOnly(t *testing.T, h Harness, names ...string) {
	t.Helper()
	checks, err := named(names)
	if err != nil {
		t.Fatal("conformance: ", err)
	}
	h = h.calibrated(t.Context())
	run(t, checks, onService(h))
	if h.needHistories(t.Context(), names) {
		runHistories(t, h)
	}
}

// ErrUnproven says that a backend makes a promise that its harness has no means to prove.
var ErrUnproven = errors.New("claimed, and not proven")

// Check is Run, or with names RunOnly, for programs other than go test. It returns nil if every (named)
// promise of the backend is proven. Otherwise the error says which promises are broken and which the
// harness cannot prove; with any of the latter, it matches [ErrUnproven].
func Check(ctx context.Context, h Harness, names ...string) error {
	checks, err := named(names)
	if err != nil {
		return err
	}
	h = h.calibrated(ctx)
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
	if h.needHistories(ctx, names) {
		if why := h.Unproven[histories]; why != "" {
			errs = append(errs, fmt.Errorf("%s: %w: %s", histories, ErrUnproven, why))
		} else {
			p, err := planned("", false)
			if err != nil {
				return err
			}
			if found, _ := checkReal(ctx, h, p); len(found.all) > 0 {
				errs = append(errs, errors.New(p.tell(found)))
			}
		}
	}
	return errors.Join(errs...)
}

// onService proves checks on the service of a harness.
func onService(h Harness) func(*testing.T, *prover, check) result {
	return func(t *testing.T, p *prover, c check) result { return p.prove(t.Context(), h, c) }
}

// inVirtualTime proves each check on a service of its own.
func inVirtualTime(fresh func(t T) Harness) func(*testing.T, *prover, check) result {
	return func(t *testing.T, p *prover, c check) (r result) {
		synctest.Test(t, func(t *testing.T) {
			owner := newRecorder(t.Context(), c.Name)
			r = p.prove(t.Context(), fresh(owner), c)
			owner.cancel()
			owner.Close()
			time.Sleep(time.Hour) // lets deliberate hangs end
		})
		return r
	}
}

func run(t *testing.T, checks []check, prove func(*testing.T, *prover, check) result) {
	t.Helper()
	p := prover{short: testing.Short()}
	var open, broken []string
	for _, c := range checks {
		t.Run(c.Name, func(t *testing.T) {
			r := prove(t, &p, c)
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
	unproven          // the backend promises it, and the harness cannot prove it
)

// String returns the outcome in a word.
func (o outcome) String() string {
	return [...]string{"passed", "failed", "unclaimed", "unproven"}[o]
}

// result is the result of a check.
type result struct {
	Check    check
	Outcome  outcome
	Reason   string   // of unclaimed and unproven
	Failures []string // of failed
	Log      []string
	Took     time.Duration
}

// tries is how often a check is run or a script played, at most, if the machine stalls meanwhile.
const tries = 3

// repeated begins the log line about it. The command internal/gate looks for it.
const repeated = "REPEATED: "

// prover proves one check after the other.
type prover struct {
	short bool                               // as with go test -short
	watch func() (stop func() time.Duration) // for stalls; nil: stall.Longest
}

// prove runs one check. It returns when the check and its clean-ups have ended, or its
// watchdog has given up.
//
// A failure while the machine did not run its goroutines, or the service was slow, for a good part of
// the TTL may be no fault of the backend. The check is run again, at most twice, each time with twice
// the TTL, and has failed if it fails each time. The log says what was repeated.
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
		if r.Outcome == failed && stalled < h.TTL/4 {
			stalled = max(stalled, h.latency(ctx))
		}
		if r.Outcome != failed || stalled < h.TTL/8 || ctx.Err() != nil {
			break
		}
		r.Log = append(r.Log, fmt.Sprintf("%sthe machine, or the service, stalled for %v when try %d of %d failed",
			repeated, stalled, try, tries))
		if try == tries {
			r.Failures = append(r.Failures, fmt.Sprintf("the machine, or the service, stalled in each of %d tries, at "+
				"last for %v with a TTL of %v: run it again on one that is less busy", tries, stalled, h.TTL))
			break
		}
		r.Log = append(r.Log, tried.Failures...)
		h.TTL *= 2
	}
	r.Took = time.Since(began)
	return r
}

// calibrated returns h with a TTL that suits the speed of its service on this machine.
func (h Harness) calibrated(ctx context.Context) Harness {
	if h.Virtual == nil && h.validate() == nil {
		h.TTL = max(h.ttlOrDefault(), min(20*h.latency(ctx), 4*h.ttlOrDefault()))
	}
	return h
}

// latency is the longest time that one of some locks takes now, on an existing connection. A hanging
// call is not a sign of a slow service.
func (h Harness) latency(ctx context.Context) time.Duration {
	r := newRecorder(ctx, histories)
	var longest atomic.Int64
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = r.Do(func() { h.measure(r, &longest) })
		r.cancel()
		r.Close()
	}()
	await(2*patienceOfLatency, done)
	return time.Duration(longest.Load())
}

const patienceOfLatency = 5 * time.Second

func (h Harness) measure(r *recorder, longest *atomic.Int64) {
	b := h.New(r)
	if b == nil {
		return
	}
	defer func() { _ = b.Close() }()
	req := driver.Request{Name: "conformance-" + owner(), TTL: max(defaultTTL, b.Guarantees().MinTTL), Lost: func() {},
		Queued: func() {}}
	ctx, cancel := context.WithTimeout(r.Context(), patienceOfLatency)
	defer cancel()
	var err error
	for n := 0; n < 10 && err == nil; n++ {
		req.Owner = owner()
		began := time.Now()
		var grant driver.Grant
		if grant, err = acquire(ctx, b, req); err == nil && grant.Hold != nil {
			err = grant.Hold.Release(ctx, 0)
		}
		if took := int64(time.Since(began)); n > 0 && took > longest.Load() {
			longest.Store(took)
		}
	}
}
