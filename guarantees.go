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
//   - Scope, how far apart two holders can be and still exclude each other;
//   - Exclusion, the basis of the promise that two do not hold at once;
//   - Fencing, whether leases have a token, and when tokens can fail to rise;
//   - Order, in which the waiters of different clients get the lock;
//   - Shared, whether many can hold a name together, and with which tokens;
//   - DeadHolder, when the lock of a dead holder is free, and DeadHolderSlack, how much later that can be;
//   - ServerCrashes, how many servers may be down while locks can still be had;
//   - SurvivesRestart, SurvivesFailover, SurvivesClockJump and SurvivesPause, the faults of servers that let no
//     second holder in;
//   - MinTTL, MaxTTL and MaxMinHold, the bounds of a TTL and of [MinHold];
//   - RestsOn, the conditions of all this, for people.
//
// The zero value of each field promises nothing, and a higher value promises more. [Require] compares them.
// No promise reaches past the end of a lease.
type Guarantees = driver.Guarantees

// State is the state of one name, as [Client.Inspect] and [Client.List] return it: its Name; whether it is Held, by
// which Holder and with which Label; of a shared lock, how many Sharers there are and Sharing, their labels; the time
// Remaining and the Token; how many Waiters there are (-1: not known) and Waiting, their labels. It may be out of date
// when it arrives.
type State = driver.State

// Finding is what [Client.Check] found about one setting of the service: its Severity, What was looked at, what was
// Found, and, if something is to be changed, an Advice.
type Finding = driver.Finding

// Severities of a [Finding], from the least to the greatest.
const (
	SeverityOK      = driver.SeverityOK      // as it should be
	SeverityInfo    = driver.SeverityInfo    // worth knowing
	SeverityWarning = driver.SeverityWarning // a promise may not hold under some fault
	SeverityProblem = driver.SeverityProblem // a declared promise does not hold, or locks cannot be had
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
	ExclusionQuorum    = driver.ExclusionQuorum    // a majority of servers, bounded clock drift, restarts as RestsOn says
	ExclusionConsensus = driver.ExclusionConsensus // a replicated log, and bounded clock drift for the lease
	ExclusionKernel    = driver.ExclusionKernel    // the host's kernel; no clock is involved
	ExclusionMemory    = driver.ExclusionMemory    // one process's memory; no clock is involved
)

// Fencings, from the weakest to the strongest.
const (
	FencingNone         = driver.FencingNone         // leases have no token
	FencingWhileKept    = driver.FencingWhileKept    // tokens rise while the service keeps its data; RestsOn says what then
	FencingUnlessRewind = driver.FencingUnlessRewind // tokens rise unless its data is set back, as by restoring a backup
)

// Orders among waiters of different clients.
const (
	OrderNone = driver.OrderNone // any; a poll or a wake-up decides
	OrderFIFO = driver.OrderFIFO // in the order in which they began to wait
)

// Sharings.
const (
	SharingNone       = driver.SharingNone       // every lock is held alone
	SharingTokenless  = driver.SharingTokenless  // shared leases have no token, even if others have one
	SharingWithTokens = driver.SharingWithTokens // those that hold together have one token, which rises as Fencing says
)

// Recoveries, from the slowest to the fastest.
const (
	RecoveryNone     = driver.RecoveryNone     // somebody has to remove the lock of a dead holder
	RecoveryWatched  = driver.RecoveryWatched  // at the latest when one client has begun to ask, and gone on asking for the TTL
	RecoveryAfterTTL = driver.RecoveryAfterTTL // when its TTL has passed
	RecoveryAtOnce   = driver.RecoveryAtOnce   // the moment the holder's process ends
)

// Require returns nil if l promises at least as much as want, field by field.
// Otherwise its error names every field that promises too little, and matches
// [errors.ErrUnsupported]. Fields of want that are zero require nothing. Call it when
// a program starts, so that a changed URL cannot weaken the guarantees on which the
// program relies:
//
//	err := locker.Require(l, locker.Guarantees{Scope: locker.ScopeNetwork, Fencing: locker.FencingWhileKept})
//
// An Exclusion says nothing without the Scope within which it holds (memory excludes
// more surely than etcd, but only inside one process). If want has an Exclusion
// without a Scope, the error matches [ErrInvalid].
//
// Backend and RestsOn are not compared. MinTTL, MaxTTL and MaxMinHold
// of want are times that have to be possible; DeadHolderSlack of want is the largest slack that is
// accepted.
func Require(l Locker, want Guarantees) error {
	if want.Exclusion != ExclusionNone && want.Scope == ScopeNone {
		return &Error{Op: "require",
			Err: invalid("Exclusion %q says nothing without a Scope: ask for a Scope, too", want.Exclusion)}
	}
	got := l.Guarantees()
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
	need(got.MaxMinHold >= want.MaxMinHold, "MaxMinHold", want.MaxMinHold, got.MaxMinHold)
	if len(short) == 0 {
		return nil
	}
	return &Error{Op: "require", Err: fmt.Errorf("backend %s promises too little: %s: %w",
		got.Backend, strings.Join(short, "; "), errors.ErrUnsupported)}
}
