package redlock

import (
	"maps"
	"time"
)

// Trace is a set of functions that a [Backend] calls; they may be nil.
type Trace struct {
	// Node is called for each answer of each node, and for each that did not
	// come. It is called from the goroutines that read the network, several at
	// once: it must not block.
	Node func(NodeEvent)
}

// NodeEvent is what came of one question to one node.
type NodeEvent struct {
	Node    string // its address
	Op      string // "vote", "raise", "renew", "repair" or "release"
	Name    string // the lock's, with prefix
	Outcome Outcome
	Took    time.Duration // from when it was sent to the answer, or to when it was given up
	Err     error         // the cause, for outcomes without an answer
}

// Outcome is how a question to a node ended.
type Outcome int

// Outcomes.
const (
	Granted  Outcome = iota // voted for us, or did as it was asked
	Refused                 // another has the lock there, or has had it since
	Gone                    // it does not have the lock
	TimedOut                // no answer in time
	Failed                  // unreachable, or an error
	Guarded                 // kept out: it was restarted too short a time ago
	Skipped                 // not asked, since it has not answered for a while
)

// String returns the outcome in a word.
func (o Outcome) String() string {
	words := [...]string{"granted", "refused", "gone", "timed out", "failed", "guarded", "skipped"}
	if o < 0 || int(o) >= len(words) {
		return "unknown"
	}
	return words[o]
}

// Stats are a [Backend]'s numbers since it was made.
type Stats struct {
	Rounds uint64 // rounds of votes; more than acquisitions where votes were split
	Split  uint64 // rounds that nobody won
	Nodes  []NodeStats
}

// NodeStats are the numbers of one node.
type NodeStats struct {
	Addr  string
	RunID string // of the server, once it is known

	Votes  map[Outcome]uint64 // what came of votes: Votes[redlock.Granted]
	Others map[Outcome]uint64 // and of everything else

	Restarts        uint64        // seen: the server came back with another run_id
	Sick            bool          // has not answered the last few times, and is asked rarely
	GuardedFor      time.Duration // how much longer it is kept out; 0: it is not
	InFlight        int           // questions under way
	PendingReleases int           // releases that are sent to it again, since they were not answered
	LastErr         error         // of the last question without an answer; nil after an answer
	LastAnswered    time.Time
}

// Stats returns the numbers of every node, in the order in which New was given them.
func (b *Backend) Stats() Stats {
	s := Stats{Rounds: b.asked.Load(), Split: b.split.Load()}
	for _, n := range b.nodes {
		s.Nodes = append(s.Nodes, n.stats())
	}
	return s
}

func (n *node) stats() NodeStats {
	n.mu.Lock()
	defer n.mu.Unlock()
	return NodeStats{
		Addr:            n.addr,
		RunID:           n.run.id,
		Votes:           maps.Clone(n.votes),
		Others:          maps.Clone(n.others),
		Restarts:        n.restarts,
		Sick:            n.sick(),
		GuardedFor:      max(0, time.Until(n.guardUntil)),
		InFlight:        int(n.inFlight.Load()),
		PendingReleases: int(n.pendingReleases.Load()),
		LastErr:         n.lastErr,
		LastAnswered:    n.answered,
	}
}
