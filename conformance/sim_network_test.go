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

// network is the connection of one client to the simulated service. It is a
// conformance.Fault.
type network struct {
	mu           sync.Mutex
	requests     conformance.Mode
	replies      conformance.Mode
	sent         int64
	heldRequests []func()
	heldReplies  []func()
	open         map[*exchange]bool // asked and not answered; true: something of it was dropped
	mended       func()             // tells the client that it may have missed something
	fragile      bool               // for the flaw of never connecting again
	broken       bool
	late         bool // a request was given up on the connection that was held: what comes next has a new one
	patient      bool // for the flaw of requests that no time limit ends
	hasty        bool // as a driver is that has the context's deadline for its connection
}

// exchange is one request and its reply.
type exchange struct {
	answer chan any
	broken chan struct{}
}

// call sends a request, which op carries out in the service, and waits for
// the reply.
func (n *network) call(ctx context.Context, op func() any) (any, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	x := &exchange{answer: make(chan any, 1), broken: make(chan struct{})}
	n.send(x, op)
	var early <-chan time.Time
	if deadline, ok := ctx.Deadline(); ok && n.hasty {
		early = time.After(time.Until(deadline) - 10*latency)
	}
	if early == nil && !n.patient {
		early = time.After(limit)
	}
	select {
	case a := <-x.answer:
		return a, nil
	case <-early:
		n.mu.Lock()
		delete(n.open, x)
		n.mu.Unlock()
		return nil, errBroken
	case <-x.broken:
		return nil, errBroken
	case <-ctx.Done():
		n.mu.Lock()
		delete(n.open, x)
		n.late = n.requests == conformance.HoldOpen
		n.mu.Unlock()
		return nil, ctx.Err()
	}
}

// limit is how long a request lasts at most, whatever its context says.
const limit = 5 * time.Second

// latency is the time that everything needs for its way.
const latency = 100 * time.Microsecond

func (n *network) send(x *exchange, op func() any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.sent++
	if n.open == nil {
		n.open = make(map[*exchange]bool)
	}
	n.open[x] = false
	carryOut := func() {
		result := op()
		time.AfterFunc(latency, func() { n.push(x, func() { x.answer <- result }) })
	}
	if n.broken {
		n.breakAll()
		return
	}
	mode := n.requests
	if mode == conformance.HoldOpen {
		mode = conformance.Hold
		if n.late {
			mode = conformance.Pass
		}
	}
	switch mode {
	case conformance.Hold:
		n.heldRequests = append(n.heldRequests, carryOut)
	case conformance.Drop:
		n.open[x] = true
	case conformance.Reset:
		n.breakAll()
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

// push delivers something to the client: the reply of x, or with a nil x a
// message that nobody asked for.
func (n *network) push(x *exchange, deliver func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	done := func() {
		delete(n.open, x)
		deliver()
	}
	switch n.replies {
	case conformance.Hold:
		n.heldReplies = append(n.heldReplies, done)
	case conformance.Drop:
		if _, ok := n.open[x]; ok {
			n.open[x] = true
		}
	case conformance.Reset:
		n.breakAll()
	default:
		done()
	}
}

// breakAll ends all exchanges. n.mu is held.
func (n *network) breakAll() {
	for x := range n.open {
		close(x.broken)
	}
	n.open = nil
	n.broken = n.fragile
}

// Requests is part of conformance.Fault.
func (n *network) Requests(m conformance.Mode) {
	n.mu.Lock()
	n.requests, n.late = m, false
	late := n.heldRequests
	if m != conformance.Hold && m != conformance.HoldOpen {
		n.heldRequests = nil
	}
	mended := n.changed(m)
	n.mu.Unlock()
	if m == conformance.Pass {
		// Latest first: what was sent on different connections has no order.
		for _, carryOut := range slices.Backward(late) {
			carryOut()
		}
	}
	mended()
}

// Replies is part of conformance.Fault.
func (n *network) Replies(m conformance.Mode) {
	n.mu.Lock()
	n.replies = m
	late := n.heldReplies
	if m != conformance.Hold {
		n.heldReplies = nil
	}
	if m == conformance.Pass {
		for _, deliver := range late {
			deliver()
		}
	}
	mended := n.changed(m)
	n.mu.Unlock()
	mended()
}

// restart is what a restart of the service does to connections.
func (n *network) restart() {
	n.mu.Lock()
	n.breakAll()
	mended := n.changed(conformance.Pass)
	n.mu.Unlock()
	mended()
}

// changed breaks what a change of mode breaks. n.mu is held; the function
// that it returns is for after.
func (n *network) changed(m conformance.Mode) func() {
	switch m {
	case conformance.Reset:
		n.breakAll()
	case conformance.Pass:
		for x, gap := range n.open {
			if gap {
				close(x.broken)
				delete(n.open, x)
			}
		}
		if n.mended != nil {
			return n.mended
		}
	}
	return func() {}
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
