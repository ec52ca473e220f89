package conformance

import "context"

// T is the part of [*testing.T] that a check needs. Checks take a T and not a *testing.T so that they
// can also run outside go test; see [Check].
//
// As with *testing.T, FailNow is for the goroutine that runs the check. The other methods may be called
// from any goroutine.
type T interface {
	// Name is the name of the running check.
	Name() string
	Helper()
	Logf(format string, args ...any)
	Errorf(format string, args ...any)
	FailNow()
	// Cleanup arranges for f to be called when the check has ended, last added first.
	Cleanup(f func())
	// Context ends when the check does, just before its cleanups, and when its watchdog gives up.
	Context() context.Context
}
