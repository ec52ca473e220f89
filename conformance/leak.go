package conformance

import (
	"strings"
	"time"

	"go.uber.org/goleak"

	"github.com/golockers/locker/internal/lab/faultproxy"
)

// leaks knows the goroutines that existed before a check.
type leaks struct{ known []goleak.Option }

// goneWithin is how long goroutines may take to end after everything was closed.
const goneWithin = 15 * time.Second

func watchLeaks(h Harness) leaks {
	// A Proxy may outlive a check, and does not belong to a backend.
	known := []goleak.Option{goleak.IgnoreCurrent(), goleak.IgnoreAnyFunction(faultproxy.Carry)}
	for _, f := range h.KnownGoroutines {
		known = append(known, goleak.IgnoreAnyFunction(f))
	}
	return leaks{known}
}

// report fails a check whose goroutines are still there.
func (l leaks) report(t T, what string) {
	var err error
	for deadline := time.Now().Add(goneWithin); ; {
		if err = goleak.Find(l.known...); err == nil {
			return
		}
		if time.Now().After(deadline) {
			break
		}
	}
	cause := "a goroutine that Close, or the end of a context, does not end"
	if strings.Contains(err.Error(), "database/sql.(*Tx)") {
		cause = "a transaction that a call has left open: commit or roll back before each return"
	}
	t.Errorf("broken promise: After Close no goroutine of a backend is left.\nseen: %v after everything "+
		"was closed, goroutines started by %s are still there\nprobable cause: %s: %v",
		goneWithin, what, cause, err)
}
