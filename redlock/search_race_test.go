//go:build race

package redlock_test

// The race detector has nothing to find in a search by one goroutine, and makes it ten times as slow: there it is a
// smaller one. `make test` runs the whole one without.
func init() { wholly = false }
