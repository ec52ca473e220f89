package driver

import "time"

// State is the state of one name, as far as the service knows. It may be out of date when it arrives.
type State struct {
	Name string
	// Held: the name has a holder, or a MinHold keeps it for a holder that has unlocked it. A name that
	// is only reserved for a client that has yet to come for it is not held.
	Held bool
	// Holder identifies the holder, for Break: the attempt or, for sharers, all that have held the name
	// together without a pause. Only the backend that returned it can interpret it; "" if nobody holds
	// the name, or the backend cannot tell holders apart.
	Holder string
	// Label is the label of the holder, or of one of the sharers; "" if unknown.
	Label string
	// Sharers is how many hold the name together; 0 if it is held exclusively or not at all.
	Sharers int
	// Sharing has the labels of at most 16 sharers, each once, in no particular order; nil if unknown.
	Sharing []string
	// Remaining is how long the lock lasts unless its holder renews it, including by a MinHold; for
	// sharers, the longest such time. 0 if there is no deadline or it is unknown.
	Remaining time.Duration
	// Since is when the lock was granted to its holder, or to the first of the sharers, by the
	// service's clock; zero if unknown.
	Since time.Time
	// KeptUntil is the time until which a MinHold keeps the lock, whether its holder still has it or
	// has unlocked it, by the service's clock; zero if there is none or it is unknown.
	KeptUntil time.Time
	// Token is the holder's fencing token; 0 if there is none or it is unknown.
	Token uint64
	// Waiters is how many requests wait in the service's queue; -1 if unknown.
	Waiters int
	// Waiting has the labels of the waiters, each once, in no particular order; nil if unknown. It
	// covers at most the first 16 places of the queue.
	Waiting []string
}

// Finding is one setting or state that a [Checker] looked at.
type Finding struct {
	Severity Severity
	What     string // what was looked at, with the server: "maxmemory-policy of 10.0.0.1:6379"
	Found    string // what it is: "allkeys-lru"
	Advice   string // the consequence, and what to change; "" for SeverityOK

	_ struct{}
}

// Severity says how much a [Finding] matters.
type Severity int

// Severities, from the least to the greatest.
const (
	SeverityOK      Severity = iota // as it should be
	SeverityInfo                    // worth knowing
	SeverityWarning                 // a promise may not hold under some fault
	SeverityProblem                 // a declared promise does not hold, or no lock is granted
)

// String returns the severity in a word.
func (s Severity) String() string { return word(int(s), "ok", "info", "warning", "problem") }
