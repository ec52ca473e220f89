package conformance_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/golockers/locker"
	"github.com/golockers/locker/conformance"
)

// errBroken is what a client of the simulated network sees of it.
var errBroken = fmt.Errorf("connection broken: %w", locker.ErrUnavailable)

const (
	latency = 100 * time.Microsecond // everything needs for its way
	limit   = 5 * time.Second        // a request lasts at most, whatever its context says
)

// network is the connection of one client to the simulated service. It is a conformance.Fault.
type network struct {
	mu                        sync.Mutex
	requests, replies         conformance.Mode
	heldRequests, heldReplies []func()
	sent                      int64
	open                      map[chan any]bool // asked and not answered; true: something of it was dropped
	mended                    func()            // tells the client that it may have missed something
	fragile, broken           bool              // for the flaw of never connecting again
	late                      bool              // a request was given up on the connection that was held: what comes next has a new one
	patient                   bool              // for the flaw of requests that no time limit ends
	hasty                     bool              // as a driver is that has the context's deadline for its connection
}

// call sends a request, which op carries out in the service, and waits for the reply, which may be an error.
func (n *network) call(ctx context.Context, op func() any) (any, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	answer := make(chan any, 2) // one that the connection breaks, and a late one
	n.send(answer, op)
	var early <-chan time.Time
	if deadline, ok := ctx.Deadline(); ok && n.hasty {
		early = time.After(time.Until(deadline) - 10*latency)
	} else if !n.patient {
		early = time.After(limit)
	}
	var err error
	select {
	case a := <-answer:
		if err, ok := a.(error); ok {
			return nil, err
		}
		return a, nil
	case <-early:
		err = errBroken
	case <-ctx.Done():
		err = ctx.Err()
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.open, answer)
	n.late = n.late || ctx.Err() != nil && n.requests == conformance.HoldOpen
	return nil, err
}

func (n *network) send(answer chan any, op func() any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.sent++
	if n.open == nil {
		n.open = make(map[chan any]bool)
	}
	n.open[answer] = false
	carryOut := func() {
		result := op()
		time.AfterFunc(latency, func() { n.push(answer, func() { answer <- result }) })
	}
	switch mode := n.requests; {
	case n.broken, mode == conformance.Reset:
		n.breakAll()
	case mode == conformance.Hold, mode == conformance.HoldOpen && !n.late:
		n.heldRequests = append(n.heldRequests, carryOut)
	case mode == conformance.Drop:
		n.open[answer] = true
	default:
		time.AfterFunc(latency, carryOut)
	}
}

// isCut reports whether nothing gets through.
func (n *network) isCut() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.requests != conformance.Pass
}

// push delivers something to the client: the reply to a request, or with nil a message that nobody asked for.
func (n *network) push(answer chan any, deliver func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	done := func() {
		delete(n.open, answer)
		deliver()
	}
	switch n.replies {
	case conformance.Hold:
		n.heldReplies = append(n.heldReplies, done)
	case conformance.Drop:
		if _, ok := n.open[answer]; ok {
			n.open[answer] = true
		}
	case conformance.Reset:
		n.breakAll()
	default:
		done()
	}
}

// breakAll ends all exchanges. n.mu is held.
func (n *network) breakAll() {
	for answer := range n.open {
		answer <- errBroken
	}
	n.open = nil
	n.broken = n.fragile
}

// Requests is part of conformance.Fault.
func (n *network) Requests(m conformance.Mode) {
	n.mu.Lock()
	n.requests, n.late = m, false
	held := delivered(&n.heldRequests, m)
	mended := n.changed(m)
	n.mu.Unlock()
	for _, carryOut := range slices.Backward(held) { // what was sent on different connections has no order
		carryOut()
	}
	mended()
}

// Replies is part of conformance.Fault.
func (n *network) Replies(m conformance.Mode) {
	n.mu.Lock()
	n.replies = m
	for _, deliver := range delivered(&n.heldReplies, m) {
		deliver()
	}
	mended := n.changed(m)
	n.mu.Unlock()
	mended()
}

// delivered is what was held, and is delivered in a new mode.
func delivered(held *[]func(), m conformance.Mode) (all []func()) {
	if m == conformance.Pass {
		all = *held
	}
	if m != conformance.Hold && m != conformance.HoldOpen {
		*held = nil
	}
	return all
}

// restart is what a restart of the service does to connections.
func (n *network) restart() {
	n.mu.Lock()
	n.breakAll()
	mended := n.changed(conformance.Pass)
	n.mu.Unlock()
	mended()
}

// changed breaks what a change of mode breaks. n.mu is held; the function that it returns is for after.
func (n *network) changed(m conformance.Mode) func() {
	if m == conformance.Reset {
		n.breakAll()
	}
	if m != conformance.Pass {
		return func() {}
	}
	for answer, gap := range n.open {
		if gap {
			answer <- errBroken
			delete(n.open, answer)
		}
	}
	return n.mended
}

// end closes the connection for good.
func (n *network) end() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.fragile = true
	n.breakAll()
}

// Sent is part of conformance.Fault.
func (n *network) Sent() int64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.sent
}
