package lab_test

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
)

// recorder is a test that may fail without failing the test that looks at it.
type recorder struct {
	testing.TB
	mu       sync.Mutex
	text     strings.Builder
	failed   bool
	skipped  bool
	cleanups []func()
}

// record runs fn as a test of its own, clean-up included, and returns how it went.
func record(t *testing.T, fn func(t testing.TB)) *recorder {
	t.Helper()
	r := &recorder{TB: t}
	done := make(chan struct{})
	go func() { // since Fatal and Skip end the goroutine
		defer close(done)
		defer func() {
			for len(r.cleanups) > 0 {
				last := len(r.cleanups) - 1
				cleanup := r.cleanups[last]
				r.cleanups = r.cleanups[:last]
				cleanup()
			}
		}()
		fn(r)
	}()
	<-done
	return r
}

func (r *recorder) write(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.text.WriteString(text + "\n")
}

func (r *recorder) fail() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed = true
}

func (r *recorder) said() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.String()
}

func (r *recorder) Helper()                      {}
func (r *recorder) Cleanup(fn func())            { r.cleanups = append(r.cleanups, fn) }
func (r *recorder) Logf(f string, args ...any)   { r.write(fmt.Sprintf(f, args...)) }
func (r *recorder) Errorf(f string, args ...any) { r.fail(); r.write(fmt.Sprintf(f, args...)) }
func (r *recorder) Fatalf(f string, args ...any) { r.Errorf(f, args...); runtime.Goexit() }
func (r *recorder) Fatal(args ...any)            { r.Fatalf("%s", fmt.Sprint(args...)) }
func (r *recorder) Skip(args ...any) {
	r.skipped = true
	r.write(fmt.Sprint(args...))
	runtime.Goexit()
}

func (r *recorder) Failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failed
}
