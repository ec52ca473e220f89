//go:build !race

package redlock_test

// searchRenewals is how often each client renews in the search for tokens. Two
// is what it takes to come to a repair and to count on it.
const (
	searchRenewals = 2
	// searchRestarts is how many restarts there are in the search for two holders.
	searchRestarts = 1
	// searchStates is how many states there are at least.
	searchStates = 100_000
)
