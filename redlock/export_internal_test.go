package redlock

import "time"

// NodeState is what a Backend knows of one node.
type NodeState struct {
	Ready      bool // it may vote, as far as is known
	Sick       bool
	GuardedFor time.Duration
	InFlight   int
}

// Nodes returns the state of every node, in the order in which New was given them.
func (b *Backend) Nodes() (all []NodeState) {
	for _, n := range b.nodes {
		n.mu.Lock()
		all = append(all, NodeState{n.scripts != nil, n.sick(), max(0, time.Until(n.guardUntil)),
			int(n.inFlight.Load())})
		n.mu.Unlock()
	}
	return all
}
