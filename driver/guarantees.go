package driver

import (
	"cmp"
	"fmt"
	"time"
)

// Guarantees are the promises of a backend, in fields that a program can compare. The
// zero value of each field promises nothing, and a higher value promises more.
// Package conformance reads the same fields and tests each claim; locker.Require refuses a
// backend that claims too little.
// No promise here reaches past the end of a lease.
type Guarantees struct {
	// Backend is the name of the service, as in messages: "single", "etcd".
	Backend string

	// Scope is how far apart two holders can be and still exclude each other.
	Scope Scope

	// Exclusion is the basis of the promise that two do not hold at once.
	Exclusion Exclusion

	// Fencing says whether leases have a token, and when tokens can fail to rise.
	Fencing Fencing

	// Order is the order in which waiters of different clients get the lock.
	// Inside one client it is always first come, first served.
	Order Order

	// Shared says whether many can hold a name together, and with which tokens. See
	// [Request].Shared.
	Shared Sharing

	// DeadHolder says when the lock of a dead holder is free again.
	DeadHolder Recovery

	// DeadHolderSlack is how much later than DeadHolder says the lock can be free.
	DeadHolderSlack time.Duration

	// ServerCrashes is how many of the service's servers may be down while locks can
	// still be had.
	ServerCrashes int

	// SurvivesRestart: a held lock is still held after all servers of the service
	// were killed and started again, under the conditions in RestsOn.
	SurvivesRestart bool

	// SurvivesFailover: a held lock is still held after another server has
	// taken the place of one that failed.
	SurvivesFailover bool

	// SurvivesClockJump: no step of a server's wall clock gives the lock to a
	// second holder while the first one's lease lasts. (A step of the holder's
	// own clock can end its lease early, never late.)
	SurvivesClockJump bool

	// SurvivesPause: no server that stood still for longer than a TTL, as a
	// frozen virtual machine does, and goes on, gives the lock to a second
	// holder while the first one's lease lasts.
	SurvivesPause bool

	// MinTTL and MaxTTL are the bounds of a TTL. 0: the engine's bounds, 10 ms and
	// 366 days.
	MinTTL, MaxTTL time.Duration

	// MaxMinHold is the longest [Request].MinHold for which the service can keep a lock without its
	// client. 0: none.
	MaxMinHold time.Duration

	// RestsOn names, for people, the conditions of the promises above.
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
	ExclusionQuorum              // a majority of servers, bounded clock drift, restarts as RestsOn says
	ExclusionConsensus           // a replicated log, and bounded clock drift for the lease
	ExclusionKernel              // the host's kernel; no clock is involved
	ExclusionMemory              // one process's memory; no clock is involved
)

// String returns the exclusion in a few words.
func (e Exclusion) String() string {
	return word(int(e), "none", "one server", "quorum", "consensus", "kernel", "memory")
}

// Fencing says when a backend's tokens are sure to rise.
type Fencing int

// Fencings, from the weakest to the strongest.
const (
	FencingNone         Fencing = iota // leases have no token
	FencingWhileKept                   // tokens rise while the service keeps its data; RestsOn says what then
	FencingUnlessRewind                // tokens rise unless its data is set back, as by restoring a backup
)

// String returns the fencing in a few words.
func (f Fencing) String() string {
	return word(int(f), "none", "while data is kept", "unless data is set back")
}

// Order is the order among waiters of different clients.
type Order int

// Orders.
const (
	OrderNone Order = iota // any; a poll or a wake-up decides
	OrderFIFO              // in the order in which they began to wait
)

// String returns the order in a word.
func (o Order) String() string { return word(int(o), "none", "fifo") }

// Sharing says whether a backend has shared locks.
type Sharing int

// Sharings.
const (
	SharingNone       Sharing = iota // every lock is held alone
	SharingTokenless                 // shared leases have no token, even if others have one
	SharingWithTokens                // those that hold together have one token, which rises as Fencing says
)

// String returns the sharing in a few words.
func (s Sharing) String() string { return word(int(s), "none", "without tokens", "with tokens") }

// Recovery says when the lock of a dead holder is free.
type Recovery int

// Recoveries, from the slowest to the fastest.
const (
	RecoveryNone     Recovery = iota // somebody has to remove it
	RecoveryWatched                  // at the latest when one client has begun to ask, and gone on asking for the TTL
	RecoveryAfterTTL                 // when its TTL has passed
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
