// Package host stands in for a test outside of go test. Package conformance runs its checks
// on a Host, package compare its trials, and the tests of package lab run tests there that
// have to fail.
package host

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
)

// Host has the methods of a [testing.TB] that servers and checks need, and keeps what it is
// told. Fatal, Fatalf, FailNow, Skip and Stop are for the goroutine of a step ([Host.Do]),
// the other methods for any goroutine.
type Host struct {
	Dir string // where TempDir makes directories

	mu       sync.Mutex
	dirs     int
	log      []string
	failures []string
	failed   bool
	stopped  error // of the step under way, by Stop, Skip or FailNow
	cleanups []func()
}

// SkipError says why a step cannot be done here.
type SkipError struct{ Why string }

func (e *SkipError) Error() string { return e.Why }

// Do runs one step to its end, however that comes, and returns what went wrong in it.
func (h *Host) Do(step func()) error {
	before := len(h.Failures())
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			if p := recover(); p != nil {
				h.Errorf("panic: %v\n%s", p, debug.Stack())
			}
		}()
		step()
	}()
	<-done
	h.mu.Lock()
	defer h.mu.Unlock()
	err := h.stopped
	h.stopped = nil
	if err == nil && len(h.failures) > before {
		err = errors.New(strings.Join(h.failures[before:], "; "))
	}
	return err
}

// Close runs the clean-ups, the last one first.
func (h *Host) Close() {
	for {
		h.mu.Lock()
		n := len(h.cleanups)
		if n == 0 {
			h.mu.Unlock()
			return
		}
		f := h.cleanups[n-1]
		h.cleanups = h.cleanups[:n-1]
		h.mu.Unlock()
		_ = h.Do(f)
	}
}

// Failures returns what was told to Errorf, Fatal and Fatalf so far.
func (h *Host) Failures() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.failures)
}

// Log returns what was told to Logf so far.
func (h *Host) Log() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.log)
}

// Failed reports whether something has failed.
func (h *Host) Failed() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.failed
}

// Stop ends the step, whose Do returns err.
func (h *Host) Stop(err error) {
	h.mu.Lock()
	h.stopped = err
	h.mu.Unlock()
	runtime.Goexit()
}

// Skip ends the step with a [SkipError].
func (h *Host) Skip(args ...any) { h.Stop(&SkipError{said(fmt.Sprint(args...))}) }

// FailNow ends the step as failed.
func (h *Host) FailNow() {
	h.mu.Lock()
	h.failed = true
	if len(h.failures) == 0 {
		h.failures = append(h.failures, "it ended itself and did not say why")
	}
	h.stopped = errors.New(h.failures[len(h.failures)-1])
	h.mu.Unlock()
	runtime.Goexit()
}

func (h *Host) Errorf(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.failed = true
	h.failures = append(h.failures, said(fmt.Sprintf(format, args...)))
}

func (h *Host) Fatalf(format string, args ...any) {
	h.Errorf(format, args...)
	h.FailNow()
}

func (h *Host) Fatal(args ...any) { h.Fatalf("%s", fmt.Sprint(args...)) }

func (h *Host) Logf(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.log = append(h.log, fmt.Sprintf(format, args...))
}

func (h *Host) Cleanup(f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.cleanups = append(h.cleanups, f)
}

func (h *Host) TempDir() string {
	h.mu.Lock()
	h.dirs++
	dir := filepath.Join(h.Dir, fmt.Sprintf("%03d", h.dirs))
	h.mu.Unlock()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		h.Fatalf("%v", err)
	}
	return dir
}

func (h *Host) Helper() {}

// said is a text without the name of the package that says it.
func said(text string) string { return strings.TrimPrefix(text, "lab: ") }
