package locker

import (
	"errors"
	"fmt"
	"strings"

	"github.com/golockers/locker/driver"
)

// Guarantees are the promises of a lock service, in fields that a program can compare:
//
//   - Backend, the name of the service in messages;
//   - Scope, the largest distance at which holders exclude each other;
//   - Exclusion, the basis of the promise that no two holders have a lock at once;
//   - Fencing, whether leases have a token, and when tokens can fail to increase;
//   - Order, the order in which waiters of different clients get the lock;
//   - Shared, whether readers can hold a name together, and with which tokens;
//   - DeadHolder, when a dead holder's lock becomes free, and DeadHolderSlack, how much later that can
//     be;
//   - ServerCrashes, how many servers may be down while locks are still granted;
//   - SurvivesRestart, SurvivesFailover, SurvivesClockJump and SurvivesPause, the server faults that
//     let no second holder in;
//   - MinTTL, MaxTTL and MaxMinHold, the bounds of a TTL and of [MinHold];
//   - MinHoldSlack, how much later than its MinHold a lock that was unlocked early can become free;
//   - RestsOn, the conditions of all this, as text for people.
//
// The zero value of each field promises nothing, and a higher value promises more. [Require] compares them.
// No promise reaches past the end of a lease.
type Guarantees = driver.Guarantees

// State is the state of one name, as [Client.Inspect] and [Client.List] return it. It may be out of
// date when it arrives. Its fields are Name; Held, Holder and Label; for a shared lock, the number of
// Sharers and their labels in Sharing; the time Remaining; the Token; Since, the time of the grant;
// KeptUntil, the time until which a [MinHold] keeps the lock (zero if unknown); and the number of
// Waiters (-1: unknown) with their labels in Waiting.
type State = driver.State

// Finding is what [Client.Check] found about one setting of the service: its Severity, What was looked
// at, what was Found, and an Advice if something should change.
type Finding = driver.Finding

// Severities of a [Finding], from the least to the greatest.
const (
	SeverityOK      = driver.SeverityOK      // as it should be
	SeverityInfo    = driver.SeverityInfo    // worth knowing
	SeverityWarning = driver.SeverityWarning // a promise may not hold under some fault
	SeverityProblem = driver.SeverityProblem // a declared promise does not hold, or no lock is granted
)

// Scopes, from the nearest to the farthest.
const (
	ScopeNone    = driver.ScopeNone
	ScopeProcess = driver.ScopeProcess // goroutines of one process
	ScopeHost    = driver.ScopeHost    // processes of one host
	ScopeNetwork = driver.ScopeNetwork // hosts that reach the same service
)

// Exclusions, from the weakest to the strongest.
const (
	ExclusionNone      = driver.ExclusionNone
	ExclusionServer    = driver.ExclusionServer    // one server: its data, its clock
	ExclusionQuorum    = driver.ExclusionQuorum    // a majority of servers; bounded clock drift; restarts: see RestsOn
	ExclusionConsensus = driver.ExclusionConsensus // a replicated log, and bounded clock drift for the lease
	ExclusionKernel    = driver.ExclusionKernel    // the host's kernel; no clock is involved
	ExclusionMemory    = driver.ExclusionMemory    // one process's memory; no clock is involved
)

// Fencings, from the weakest to the strongest.
const (
	FencingNone         = driver.FencingNone         // leases have no token
	FencingWhileKept    = driver.FencingWhileKept    // tokens increase while the service keeps its data, see RestsOn
	FencingUnlessRewind = driver.FencingUnlessRewind // tokens increase unless the data is rolled back, as by a restored backup
)

// Orders among waiters of different clients.
const (
	OrderNone = driver.OrderNone // no order: a poll or a wake-up decides
	OrderFIFO = driver.OrderFIFO // in the order in which they began to wait
)

// Sharings.
const (
	SharingNone       = driver.SharingNone       // every lock is exclusive
	SharingTokenless  = driver.SharingTokenless  // shared leases have no token, even if others have one
	SharingWithTokens = driver.SharingWithTokens // concurrent readers have one token, which increases as Fencing says
)

// Recoveries, from the slowest to the fastest.
const (
	RecoveryNone     = driver.RecoveryNone     // a person has to remove the lock
	RecoveryWatched  = driver.RecoveryWatched  // at the latest after one client has asked continuously for the TTL
	RecoveryAfterTTL = driver.RecoveryAfterTTL // when the lock's TTL has passed
	RecoveryAtOnce   = driver.RecoveryAtOnce   // the moment the holder's process ends
)

// GuaranteesOf returns the promises of the service behind l, which are those of its method Guarantees.
// A Locker that wraps another one passes that method on. known is false if l has no such method, or if
// the method returns the zero Guarantees because it does not know them.
func GuaranteesOf(l Locker) (g Guarantees, known bool) {
	if knows, ok := l.(interface{ Guarantees() Guarantees }); ok {
		g = knows.Guarantees()
	}
	return g, g != Guarantees{}
}

// Require returns nil if l promises at least as much as want, field by field. Otherwise its error names
// every field that promises too little, and matches [errors.ErrUnsupported]. Zero fields of want
// require nothing. Call it when a program starts, so that a changed URL cannot weaken the guarantees
// that the program relies on:
//
//	err := locker.Require(l, locker.Guarantees{Scope: locker.ScopeNetwork, Fencing: locker.FencingWhileKept})
//
// An Exclusion means nothing without its Scope: memory excludes more reliably than etcd, but only
// inside one process. If want has an Exclusion without a Scope, the error matches [ErrInvalid].
//
// Backend and RestsOn are not compared. MinTTL, MaxTTL and MaxMinHold of want are times that must be
// possible; DeadHolderSlack and MinHoldSlack of want are the largest slacks accepted.
//
// If the promises of l are unknown (see [GuaranteesOf]), the error says so and also matches
// [errors.ErrUnsupported].
func Require(l Locker, want Guarantees) error {
	if want.Exclusion != ExclusionNone && want.Scope == ScopeNone {
		return &Error{Op: "require",
			Err: invalid("Exclusion %q means nothing without a Scope: ask for a Scope, too", want.Exclusion)}
	}
	got, known := GuaranteesOf(l)
	if !known {
		return &Error{Op: "require", Err: fmt.Errorf("the guarantees of this Locker (%T) are unknown: it has no method "+
			"Guarantees() locker.Guarantees, as a Client has: %w", l, errors.ErrUnsupported)}
	}
	var short []string
	need := func(ok bool, field string, want, got any) {
		if !ok {
			short = append(short, fmt.Sprintf("%s: want %v, have %v", field, want, got))
		}
	}
	need(got.Scope >= want.Scope, "Scope", want.Scope, got.Scope)
	need(got.Exclusion >= want.Exclusion, "Exclusion", want.Exclusion, got.Exclusion)
	need(got.Fencing >= want.Fencing, "Fencing", want.Fencing, got.Fencing)
	need(got.Order >= want.Order, "Order", want.Order, got.Order)
	need(got.Shared >= want.Shared, "Shared", want.Shared, got.Shared)
	need(got.DeadHolder >= want.DeadHolder, "DeadHolder", want.DeadHolder, got.DeadHolder)
	need(want.DeadHolderSlack == 0 || got.DeadHolderSlack <= want.DeadHolderSlack, "DeadHolderSlack",
		want.DeadHolderSlack, got.DeadHolderSlack)
	need(got.ServerCrashes >= want.ServerCrashes, "ServerCrashes", want.ServerCrashes, got.ServerCrashes)
	need(got.SurvivesRestart || !want.SurvivesRestart, "SurvivesRestart", true, false)
	need(got.SurvivesFailover || !want.SurvivesFailover, "SurvivesFailover", true, false)
	need(got.SurvivesClockJump || !want.SurvivesClockJump, "SurvivesClockJump", true, false)
	need(got.SurvivesPause || !want.SurvivesPause, "SurvivesPause", true, false)
	lo, hi := got.TTLBounds()
	need(want.MinTTL == 0 || lo <= want.MinTTL, "MinTTL", want.MinTTL, lo)
	need(want.MaxTTL == 0 || hi >= want.MaxTTL, "MaxTTL", want.MaxTTL, hi)
	need(want.MinHoldSlack == 0 || got.MinHoldSlack <= want.MinHoldSlack, "MinHoldSlack", want.MinHoldSlack,
		got.MinHoldSlack)
	need(got.MaxMinHold >= want.MaxMinHold, "MaxMinHold", want.MaxMinHold, got.MaxMinHold)
	if len(short) == 0 {
		return nil
	}
	return &Error{Op: "require", Err: fmt.Errorf("backend %s promises too little: %s: %w",
		got.Backend, strings.Join(short, "; "), errors.ErrUnsupported)}
}
