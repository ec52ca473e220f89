package driver

import (
	"cmp"
	"fmt"
	"time"
)

// Guarantees are the promises of a backend, in fields that a program can compare. The zero value of
// each field promises nothing, and a higher value promises more. Package conformance reads the same
// fields and tests each claim; locker.Require refuses a backend that claims too little. No promise
// reaches past the end of a lease.
type Guarantees struct {
	// Backend is the name of the service, as in messages: "single", "etcd".
	Backend string

	// Scope is the largest distance at which holders exclude each other.
	Scope Scope

	// Exclusion is the basis of the promise that no two holders have a lock at once.
	Exclusion Exclusion

	// Fencing says whether leases have a token, and when tokens can fail to increase.
	Fencing Fencing

	// Order is the order in which waiters of different clients get the lock.
	// Inside one client it is always first come, first served.
	Order Order

	// Shared says whether sharers can hold a name together, and with which tokens. See
	// [Request].Shared.
	Shared Sharing

	// DeadHolder says when a dead holder's lock becomes free.
	DeadHolder Recovery

	// DeadHolderSlack is how much later than DeadHolder says the lock can become free.
	DeadHolderSlack time.Duration

	// ServerCrashes is how many of the service's servers may be down while locks are still granted.
	ServerCrashes int

	// SurvivesRestart: a held lock is still held after all servers of the service were killed and
	// restarted, under the conditions in RestsOn.
	SurvivesRestart bool

	// SurvivesFailover: a held lock is still held after another server has replaced a failed one.
	SurvivesFailover bool

	// SurvivesClockJump: no step of a server's wall clock gives the lock to a
	// second holder while the first one's lease lasts. (A step of the holder's
	// own clock can end its lease early, never late.)
	SurvivesClockJump bool

	// SurvivesPause: no server that was paused for longer than a TTL, as a frozen virtual machine is,
	// and then resumes gives the lock to a second holder while the first one's lease lasts.
	SurvivesPause bool

	// MinTTL and MaxTTL are the bounds of a TTL. 0: the engine's bounds, 10 ms and
	// 366 days.
	MinTTL, MaxTTL time.Duration

	// MaxMinHold is the longest [Request].MinHold for which the service can keep a lock without its
	// client. 0: none.
	MaxMinHold time.Duration

	// MinHoldSlack is how much later than its MinHold a lock that was unlocked early can become free,
	// if the service has answered the unlock. Add the time that the unlock took, and 1 % of the MinHold
	// for clocks that run at different speeds.
	MinHoldSlack time.Duration

	// RestsOn names the conditions of the promises above, as text for people.
	RestsOn string
}

// Scope is how far a lock reaches.
type Scope int

// Scopes, from the nearest to the farthest.
const (
	ScopeNone    Scope = iota
	ScopeProcess       // goroutines of one process
	ScopeHost          // processes of one host
	ScopeNetwork       // hosts that reach the same service
)

// String returns the scope in a word.
func (s Scope) String() string { return word(int(s), "none", "process", "host", "network") }

// Exclusion is the basis of mutual exclusion, within the Scope.
type Exclusion int

// Exclusions, from the weakest to the strongest.
const (
	ExclusionNone      Exclusion = iota
	ExclusionServer              // one server: its data, its clock
	ExclusionQuorum              // a majority of servers; bounded clock drift; restarts: see RestsOn
	ExclusionConsensus           // a replicated log, and bounded clock drift for the lease
	ExclusionKernel              // the host's kernel; no clock is involved
	ExclusionMemory              // one process's memory; no clock is involved
)

// String returns the exclusion in a few words.
func (e Exclusion) String() string {
	return word(int(e), "none", "one server", "quorum", "consensus", "kernel", "memory")
}

// Fencing says when a backend's tokens are sure to increase.
type Fencing int

// Fencings, from the weakest to the strongest.
const (
	FencingNone         Fencing = iota // leases have no token
	FencingWhileKept                   // tokens increase while the service keeps its data, see RestsOn
	FencingUnlessRewind                // tokens increase unless the data is rolled back, as by a restored backup
)

// String returns the fencing in a few words.
func (f Fencing) String() string {
	return word(int(f), "none", "while data is kept", "unless data is set back")
}

// Order is the order among waiters of different clients.
type Order int

// Orders.
const (
	OrderNone Order = iota // no order: a poll or a wake-up decides
	OrderFIFO              // in the order in which they began to wait
)

// String returns the order in a word.
func (o Order) String() string { return word(int(o), "none", "fifo") }

// Sharing says whether a backend has shared locks.
type Sharing int

// Sharings.
const (
	SharingNone       Sharing = iota // every lock is exclusive
	SharingTokenless                 // shared leases have no token, even if others have one
	SharingWithTokens                // concurrent sharers have one token, which increases as Fencing says
)

// String returns the sharing in a few words.
func (s Sharing) String() string { return word(int(s), "none", "without tokens", "with tokens") }

// Recovery says when the lock of a dead holder is free.
type Recovery int

// Recoveries, from the slowest to the fastest.
const (
	RecoveryNone     Recovery = iota // a person has to remove the lock
	RecoveryWatched                  // at the latest after one client has asked continuously for the TTL
	RecoveryAfterTTL                 // when the lock's TTL has passed
	RecoveryAtOnce                   // the moment the holder's process ends
)

// String returns the recovery in a few words.
func (r Recovery) String() string {
	return word(int(r), "none", "watched for the TTL", "after the TTL", "at once")
}

func word(i int, words ...string) string {
	if i < 0 || i >= len(words) {
		return fmt.Sprintf("unknown(%d)", i)
	}
	return words[i]
}

// TTLBounds returns the shortest and the longest TTL that the backend and the engine accept.
func (g Guarantees) TTLBounds() (lo, hi time.Duration) {
	return max(g.MinTTL, MinTTL), min(cmp.Or(g.MaxTTL, MaxTTL), MaxTTL)
}
