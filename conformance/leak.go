package conformance

import (
	"time"

	"go.uber.org/goleak"

	"github.com/golockers/locker/internal/lab/faultproxy"
)

// leaks knows the goroutines that were there before a check.
type leaks struct{ known []goleak.Option }

// goneWithin is how long goroutines may take to end after everything was closed.
const goneWithin = 5 * time.Second

func watchLeaks(h Harness) leaks {
	// A Proxy may be there for longer than one check, and is no backend's.
	known := []goleak.Option{goleak.IgnoreCurrent(), goleak.IgnoreAnyFunction(faultproxy.Carry)}
	for _, f := range h.KnownGoroutines {
		known = append(known, goleak.IgnoreAnyFunction(f))
	}
	return leaks{known}
}

// report fails the check if goroutines of it are still there.
func (l leaks) report(t T, c Check) {
	deadline := time.Now().Add(goneWithin)
	for {
		err := goleak.Find(l.known...)
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Errorf("broken promise: After Close no goroutine of a backend is left.\nseen: %v after everything was closed, goroutines that check %s has started are still there\nprobable cause: a goroutine that Close, or the end of a context, does not end: %v", goneWithin, c.Name, err)
			return
		}
	}
}
