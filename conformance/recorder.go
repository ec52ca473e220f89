package conformance

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
	"time"
)

// recorder is the T of [Prove]: it keeps what a check says.
type recorder struct {
	name   string
	ctx    context.Context
	cancel context.CancelFunc

	mu       sync.Mutex
	closed   bool // what comes later is about a check that was given up on
	cleanups []func()
	outcome  Outcome
	reason   string
	failures []string
	more     int // failures that were left out
	log      []string
}

// maxFailures is how many failures of one check are kept: the others, with
// many clients, say the same again.
const maxFailures = 5

var _ T = (*recorder)(nil)

func newRecorder(ctx context.Context, name string) *recorder {
	r := &recorder{name: name}
	r.ctx, r.cancel = context.WithCancel(ctx)
	return r
}

func (r *recorder) Name() string             { return r.name }
func (r *recorder) Helper()                  {}
func (r *recorder) Context() context.Context { return r.ctx }

func (r *recorder) Logf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.closed {
		r.log = append(r.log, fmt.Sprintf(format, args...))
	}
}

func (r *recorder) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return
	}
	r.outcome = Failed
	if len(r.failures) < maxFailures {
		r.failures = append(r.failures, fmt.Sprintf(format, args...))
	} else {
		r.more++
	}
}

func (r *recorder) FailNow() {
	r.mu.Lock()
	if !r.closed {
		r.outcome = Failed
	}
	r.mu.Unlock()
	runtime.Goexit()
}

func (r *recorder) Cleanup(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cleanups = append(r.cleanups, f)
}

// decide ends a check that is not to be run.
func (r *recorder) decide(o Outcome, reason string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.closed {
		r.outcome, r.reason = o, reason
	}
}

// close makes the recorder deaf, so that its fields can be read.
func (r *recorder) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	if r.more > 0 {
		r.failures = append(r.failures, fmt.Sprintf("and %d more failures of the same check", r.more))
	}
	if r.outcome == Failed && len(r.failures) == 0 {
		r.failures = append(r.failures, "the check ended itself and did not say why")
	}
}

// do runs f to its end, however that comes, and reports a panic.
func (r *recorder) do(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			if p := recover(); p != nil {
				r.Errorf("panic: %v\n%s", p, debug.Stack())
			}
		}()
		f()
	}()
	<-done
}

func (r *recorder) cleanUp() {
	r.cancel()
	for {
		r.mu.Lock()
		n := len(r.cleanups)
		if n == 0 {
			r.mu.Unlock()
			return
		}
		f := r.cleanups[n-1]
		r.cleanups = r.cleanups[:n-1]
		r.mu.Unlock()
		r.do(f)
	}
}

// runWatched runs a check and its clean-ups under a watchdog, and looks for
// goroutines that they leave.
func (p *prover) runWatched(ctx context.Context, h Harness, c Check) *recorder {
	r := newRecorder(ctx, c.Name)
	defer r.close()
	defer r.cancel()
	leaks := watchLeaks(h)
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer r.cleanUp()
		r.do(func() { attempt(r, h, c) })
	}()
	patience := time.Minute + 60*h.ttlOrDefault()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
		stacks := make([]byte, 1<<20)
		stacks = stacks[:runtime.Stack(stacks, true)]
		r.Errorf("broken promise: %s\nseen: the check did not end within %v\nprobable cause: a call that does not return; the stacks of all goroutines:\n%s", c.Promise, patience, stacks)
		// Much of what hangs ends with the context. What does not is left behind.
		r.cancel()
		timer.Reset(goneWithin)
		select {
		case <-done:
		case <-timer.C:
		}
		return r
	}
	leaks.report(r, c, &p.leaks)
	return r
}

// attempt runs the check if it applies and can be run.
func attempt(r *recorder, h Harness, c Check) {
	s := h.subject(r)
	if c.unasked != nil {
		if why := c.unasked(s); why != "" {
			r.decide(Unclaimed, why)
			return
		}
	}
	if c.missing != nil {
		if hook := c.missing(s); hook != "" {
			if why, ok := h.Unproven[c.Name]; ok {
				r.decide(Unproven, why)
				return
			}
			if c.rare {
				r.decide(Unproven, "the harness has no hook "+hook)
				return
			}
			r.Errorf("unproven promise: %s\nseen: backend %s claims it, and the harness has no hook %s to prove it with\nwhat to do: give Harness.%s, claim less, or say in Harness.Unproven[%q] why it cannot be proven", c.Promise, s.Backend, hook, hook, c.Name)
			return
		}
	}
	c.Run(r, h)
}
