package driver

import "time"

// State is the state of one name, as far as the service knows it. It may be out of
// date when it arrives.
type State struct {
	Name string
	// Held: somebody holds the name. One that is only kept for a client that has yet to come
	// for it is not held.
	Held bool
	// Holder is who holds the name, for Break: the attempt, or of sharers all that have held
	// it together without a pause. It has a meaning only for the backend that gave it; "" if
	// nobody holds the name, or the backend cannot tell one holder from another.
	Holder string
	// Label is the holder's label, or that of one of the sharers; "" if it is not known.
	Label string
	// Sharers is how many hold the name together; 0 if one holds it alone, or nobody.
	Sharers int
	// Sharing has the labels of the sharers, each once, in no order, of 16 of them at
	// most; nil if they are not known.
	Sharing []string
	// Remaining is how long the lock lasts, also by a MinHold, unless its holder renews it,
	// and the longest such time of its sharers; 0 if it has no deadline or that is not known.
	Remaining time.Duration
	// Token is the holder's fencing token, 0 if there is none or it is not known.
	Token uint64
	// Waiters is how many wait in the service's queue; -1 if it does not know.
	Waiters int
	// Waiting has the labels of the waiters, each once, in no order; nil if they are
	// not known. It covers at most the first 16 places of the queue.
	Waiting []string
}

// Finding is one setting or state that a [Checker] looked at.
type Finding struct {
	Severity Severity
	What     string // what was looked at, with the server: "maxmemory-policy of 10.0.0.1:6379"
	Found    string // what it is: "allkeys-lru"
	Advice   string // what follows, and what to change; "" for SeverityOK

	_ struct{}
}

// Severity is how much a [Finding] matters.
type Severity int

// Severities, from the least to the greatest.
const (
	SeverityOK      Severity = iota // as it should be
	SeverityInfo                    // worth knowing
	SeverityWarning                 // a promise may not hold under some fault
	SeverityProblem                 // a declared promise does not hold, or locks cannot be had
)

// String returns the severity in a word.
func (s Severity) String() string { return word(int(s), "ok", "info", "warning", "problem") }
