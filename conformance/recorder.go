package conformance

import (
	"context"
	"runtime"
	"sync"
	"time"

	"github.com/golockers/locker/internal/host"
)

// recorder is the T of a check; it keeps the check's messages.
type recorder struct {
	host.Host
	name   string
	ctx    context.Context
	cancel context.CancelFunc

	mu      sync.Mutex
	outcome outcome // of a check that did not run
	reason  string
}

var _ T = (*recorder)(nil)

func newRecorder(ctx context.Context, name string) *recorder {
	r := &recorder{name: name}
	r.ctx, r.cancel = context.WithCancel(ctx)
	return r
}

func (r *recorder) Name() string             { return r.name }
func (r *recorder) Context() context.Context { return r.ctx }

// decide ends a check that should not run.
func (r *recorder) decide(o outcome, reason string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.outcome, r.reason = o, reason
}

// result is what the check has reported so far. An abandoned check may report more later.
func (r *recorder) result(c check) result {
	r.mu.Lock()
	defer r.mu.Unlock()
	res := result{Check: c, Outcome: r.outcome, Reason: r.reason, Failures: r.Failures(), Log: r.Log()}
	if r.Failed() {
		res.Outcome = failed
	}
	return res
}

// runWatched runs a check and its cleanups under a watchdog, and looks for goroutines that they leave.
func (p *prover) runWatched(ctx context.Context, h Harness, c check) result {
	r := newRecorder(ctx, c.Name)
	defer r.cancel()
	leaks := watchLeaks(h)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = r.Do(func() { p.attempt(r, h, c) })
		r.cancel()
		r.Close()
	}()
	patience := time.Minute + 60*h.ttlOrDefault()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
		stacks := make([]byte, 1<<20)
		stacks = stacks[:runtime.Stack(stacks, true)]
		r.Errorf("broken promise: %s\nseen: the check did not end within %v\nprobable cause: a call that "+
			"does not return; the stacks of all goroutines:\n%s", c.Promise, patience, stacks)
		// Most of what hangs ends with the context. The rest is left behind.
		r.cancel()
		timer.Reset(goneWithin)
		select {
		case <-done:
		case <-timer.C:
		}
		return r.result(c)
	}
	leaks.report(r, "check "+c.Name)
	return r.result(c)
}

// attempt runs the check if it applies and can run.
func (p *prover) attempt(r *recorder, h Harness, c check) {
	s := h.subject(r)
	for _, own := range allChecks(s) {
		if own.Name == c.Name {
			c = own
		}
	}
	why, excused := h.Unproven[c.Name]
	switch {
	case c.unasked != "":
		r.decide(unclaimed, c.unasked)
	case excused && (c.missing != "" || c.Name == many):
		r.decide(unproven, why)
	case c.missing != "":
		r.Errorf("unproven promise: %s\nseen: backend %s claims it, and the harness has no hook %s to "+
			"prove it with\nwhat to do: give Harness.%s, claim less, or say in Harness.Unproven[%q] "+
			"why it cannot be proven", c.Promise, s.Backend, c.missing, c.missing, c.Name)
	case h.unplayed(c) != "":
		r.decide(unproven, h.unplayed(c))
	case c.run != nil:
		of := thousand
		if p.short {
			of = hundreds
		}
		c.run(newTrial(r, h, s.Guarantees, c, of))
	}
}
