package conformance

import (
	"regexp"
	"strings"
	"time"

	"go.uber.org/goleak"

	"github.com/golockers/locker/internal/lab/faultproxy"
)

// leaks knows the goroutines that were there before a check.
type leaks struct{ known []goleak.Option }

// goneWithin is how long goroutines may take to end after everything was closed.
const goneWithin = 15 * time.Second

func watchLeaks(h Harness) leaks {
	// A Proxy may be there for longer than one check, and is no backend's.
	known := []goleak.Option{goleak.IgnoreCurrent(), goleak.IgnoreAnyFunction(faultproxy.Carry)}
	for _, f := range h.KnownGoroutines {
		known = append(known, goleak.IgnoreAnyFunction(f))
	}
	return leaks{known}
}

// toldLeaks are the functions that have started goroutines which were left
// behind, and were told of: each check would say the same again.
type toldLeaks map[string]bool

// startedBy finds what has started a goroutine in its stack.
var startedBy = regexp.MustCompile(`(?m)^created by (\S+)`)

// report fails the check if goroutines of it are still there, and have not been
// told of by an earlier check.
func (l leaks) report(t T, c check, told *toldLeaks) {
	var err error
	for deadline := time.Now().Add(goneWithin); ; {
		if err = goleak.Find(l.known...); err == nil {
			return
		}
		if time.Now().After(deadline) {
			break
		}
	}
	isNew := false
	for _, by := range startedBy.FindAllStringSubmatch(err.Error(), -1) {
		if !(*told)[by[1]] {
			isNew = true
		}
		if *told == nil {
			*told = toldLeaks{}
		}
		(*told)[by[1]] = true
	}
	if !isNew {
		t.Logf("check %s leaves goroutines behind, too, of the kind that was told of before", c.Name)
		return
	}
	cause := "a goroutine that Close, or the end of a context, does not end"
	if strings.Contains(err.Error(), "database/sql.(*Tx)") {
		cause = "a transaction that a call has left open: commit, or roll back, before each return"
	}
	t.Errorf("broken promise: After Close no goroutine of a backend is left.\nseen: %v after everything "+
		"was closed, goroutines that check %s has started are still there\nprobable cause: %s: %v",
		goneWithin, c.Name, cause, err)
}
