package conformance

import "context"

// T is what a check needs of a test: a part of [*testing.T], which is one.
// Checks are given a T and not a *testing.T so that they can also be run
// outside of go test; see [Check].
//
// As with *testing.T, FailNow is for the goroutine that runs the check. The
// others may be called from any.
type T interface {
	// Name names the check that is run.
	Name() string
	Helper()
	Logf(format string, args ...any)
	Errorf(format string, args ...any)
	FailNow()
	// Cleanup arranges for f to be called when the check is over; what was
	// arranged last is called first.
	Cleanup(f func())
	// Context ends when the check does, just before its clean-ups, and when
	// its watchdog loses patience.
	Context() context.Context
}
