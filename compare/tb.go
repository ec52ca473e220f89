package compare

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// stage is what servers, proxies and children of one service belong to: the lab.TB of a program. What
// fails on it ends the step under way with an error, see [stage.do], and its cleanups run once, at the
// end, in reverse order.
type stage struct {
	dir string

	mu       sync.Mutex
	dirs     int
	failures []string
	cleanups []func()
}

// stageEnd is the panic by which Fatalf and Skip do not return.
type stageEnd struct{ err error }

// missingError says that something is not installed here.
type missingError struct{ what string }

func (e *missingError) Error() string { return e.what }

// do runs one step, and returns what went wrong in it. The goroutine that runs it is the one on which
// Fatalf may be called.
func (s *stage) do(step func()) (err error) {
	s.mu.Lock()
	before := len(s.failures)
	s.mu.Unlock()
	defer func() {
		if p := recover(); p != nil {
			end, ours := p.(stageEnd)
			if !ours {
				panic(p)
			}
			err = end.err
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if err == nil && len(s.failures) > before {
			err = fmt.Errorf("%s", strings.Join(s.failures[before:], "; "))
		}
	}()
	step()
	return nil
}

// end runs the cleanups.
func (s *stage) end() {
	for {
		s.mu.Lock()
		n := len(s.cleanups)
		if n == 0 {
			s.mu.Unlock()
			return
		}
		f := s.cleanups[n-1]
		s.cleanups = s.cleanups[:n-1]
		s.mu.Unlock()
		f()
	}
}

func (s *stage) Helper() {}

func (s *stage) TempDir() string {
	s.mu.Lock()
	s.dirs++
	dir := filepath.Join(s.dir, fmt.Sprintf("%03d", s.dirs))
	s.mu.Unlock()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		s.Fatalf("%v", err)
	}
	return dir
}

func (s *stage) Cleanup(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cleanups = append(s.cleanups, f)
}

// Logf drops what is not for the person at the terminal: it is in the servers' logs.
func (s *stage) Logf(string, ...any) {}

func (s *stage) Errorf(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failures = append(s.failures, strings.TrimPrefix(fmt.Sprintf(format, args...), "lab: "))
}

func (s *stage) Fatalf(format string, args ...any) {
	s.Errorf(format, args...)
	s.FailNow()
}

func (s *stage) Fatal(args ...any) { s.Fatalf("%s", fmt.Sprint(args...)) }

func (s *stage) FailNow() {
	s.mu.Lock()
	text := "it failed"
	if n := len(s.failures); n > 0 {
		text = s.failures[n-1]
	}
	s.mu.Unlock()
	panic(stageEnd{fmt.Errorf("%s", text)})
}

func (s *stage) Skip(args ...any) {
	panic(stageEnd{&missingError{strings.TrimPrefix(fmt.Sprint(args...), "lab: ")}})
}

// Failed is false always: logs of servers stay in their files.
func (s *stage) Failed() bool { return false }
