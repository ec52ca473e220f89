package redlock

import (
	"sync"
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
	Took    time.Duration // from the question to the answer, or to when it was given up
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
	outcomes int     = iota
)

// String returns the outcome in a word.
func (o Outcome) String() string {
	words := [outcomes]string{"granted", "refused", "gone", "timed out", "failed", "guarded", "skipped"}
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

	// Votes counts outcomes of votes by [Outcome]: Votes[redlock.Granted].
	Votes [outcomes]uint64
	// Others counts outcomes of everything else.
	Others [outcomes]uint64

	Restarts     uint64        // seen: the server came back with another run_id
	Sick         bool          // has not answered the last few times, and is asked rarely
	GuardedFor   time.Duration // how much longer it is kept out; 0: it is not
	InFlight     int           // questions under way
	Owed         int           // releases that are still to be delivered to it
	LastRTT      time.Duration // of the last answer
	MeanRTT      time.Duration // moving average over the last answers
	MaxRTT       time.Duration
	LastErr      error // of the last question without an answer; nil after an answer
	LastAnswered time.Time
}

// Stats returns the numbers of every node, in the order in which New was given them.
func (b *Backend) Stats() Stats {
	s := Stats{Rounds: b.rounds.Load(), Split: b.split.Load()}
	for _, v := range b.voters {
		s.Nodes = append(s.Nodes, v.stats())
	}
	return s
}

// numbers are the live counts of a voter.
type numbers struct {
	mu     sync.Mutex
	votes  [outcomes]uint64
	others [outcomes]uint64
	flying int
	last   time.Duration
	mean   time.Duration
	max    time.Duration
}

// asked notes that a question is under way.
func (n *numbers) asked() {
	n.mu.Lock()
	n.flying++
	n.mu.Unlock()
}

// ended notes how it ended; flew: asked was called for it.
func (n *numbers) ended(vote bool, o Outcome, took time.Duration, flew bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if flew {
		n.flying--
	}
	if vote {
		n.votes[o]++
	} else {
		n.others[o]++
	}
	if o <= Gone {
		n.last, n.max = took, max(n.max, took)
		if n.mean == 0 {
			n.mean = took
		}
		n.mean += (took - n.mean) / 16
	}
}

func (v *voter) stats() NodeStats {
	s := NodeStats{Addr: v.addr}
	v.num.mu.Lock()
	s.Votes, s.Others, s.InFlight = v.num.votes, v.num.others, v.num.flying
	s.LastRTT, s.MeanRTT, s.MaxRTT = v.num.last, v.num.mean, v.num.max
	v.num.mu.Unlock()
	v.mu.Lock()
	defer v.mu.Unlock()
	s.RunID, s.Restarts, s.Owed = v.runID, v.restarts, len(v.debts)
	s.Sick, s.LastErr, s.LastAnswered = v.sick(), v.lastErr, v.answered
	s.GuardedFor = max(0, time.Until(v.guardUntil))
	return s
}
