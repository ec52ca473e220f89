package faultproxy

import (
	"context"
	"net"
	"sync"
	"time"
)

// pipe is one direction of a connection: a queue without bounds between the goroutine that reads and
// the one that delivers, so that a sender is never held up, whatever happens to the receiver.
type pipe struct {
	changed chan struct{} // holds one element if something changed since the delivery looked last
	own     bool          // a mode was set for this connection alone; guarded by the link's mutex

	mu       sync.Mutex
	queue    []chunk
	mode     Mode
	delay    time.Duration
	gap      bool // something was swallowed
	lostEnd  bool // the end of the stream among it
	finished bool // nothing will be delivered any more
	count    Flow
	reads    int64
	sent     time.Time // when something came last
}

// chunk is what one read returned. The one with end is the last.
type chunk struct {
	data []byte
	end  bool
	due  time.Time // not to be delivered earlier
}

func newPipe() *pipe { return &pipe{changed: make(chan struct{}, 1)} }

// notify is called with the mutex held.
func (p *pipe) notify() {
	select {
	case p.changed <- struct{}{}:
	default:
	}
}

// push appends to the queue. Nothing may follow the end.
func (p *pipe) push(data []byte, end bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	p.sent = now
	p.count.Sent += int64(len(data))
	if len(data) > 0 {
		p.reads++
	}
	if p.finished {
		p.count.Dropped += int64(len(data))
		return
	}
	p.count.Held += int64(len(data))
	p.queue = append(p.queue, chunk{data: data, end: end, due: now.Add(p.delay)})
	p.swallow()
	p.notify()
}

// setMode changes the mode. It reports whether the stream would have to go on with a gap in it.
func (p *pipe) setMode(m Mode) (gap bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mode = m
	p.swallow()
	p.notify()
	return p.gap && !p.finished && m != Drop
}

// swallow empties the queue if the mode is Drop. It is called with the mutex held.
func (p *pipe) swallow() {
	if p.mode != Drop || len(p.queue) == 0 {
		return
	}
	p.gap = true
	p.lostEnd = p.lostEnd || p.queue[len(p.queue)-1].end
	p.discard()
}

// swallowedEnd reports whether the receiver will never be told that its sender is gone.
func (p *pipe) swallowedEnd() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lostEnd
}

// discard is called with the mutex held.
func (p *pipe) discard() {
	p.queue = nil
	p.count.Dropped += p.count.Held
	p.count.Held = 0
}

func (p *pipe) setDelay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

// finish makes deliver return. What is queued and what still comes is lost.
func (p *pipe) finish() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.finished = true
	p.discard()
	p.notify()
}

func (p *pipe) flow() Flow {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.count
}

func (p *pipe) packets() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.reads
}

// waitForPass returns true once the mode is Pass, and false if the pipe is finished before.
func (p *pipe) waitForPass(ctx context.Context) bool {
	for {
		p.mu.Lock()
		pass, finished := p.mode == Pass, p.finished
		p.mu.Unlock()
		if pass || finished {
			return !finished
		}
		select {
		case <-ctx.Done():
			return false
		case <-p.changed:
		}
	}
}

// deliver writes to dst what the mode lets through, and returns when the end of the stream was
// delivered, dst takes no more, or the pipe is finished. Only deliver takes from the queue, except that
// it may be emptied.
func (p *pipe) deliver(ctx context.Context, dst net.Conn) {
	defer p.finish()
	for {
		next, wait := p.take()
		if next == nil {
			if !p.sleep(ctx, wait) {
				return
			}
			continue
		}
		if len(next.data) > 0 {
			if _, err := dst.Write(next.data); err != nil {
				return
			}
		}
		if next.end {
			// The other direction may go on.
			if half, ok := dst.(interface{ CloseWrite() error }); ok {
				_ = half.CloseWrite()
			}
			return
		}
	}
}

// take removes the first chunk if it is to be delivered now. If not, it returns how long to wait; less
// than zero means until something changes.
func (p *pipe) take() (*chunk, time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mode != Pass || len(p.queue) == 0 {
		return nil, -1
	}
	next := p.queue[0]
	if wait := time.Until(next.due); wait > 0 {
		return nil, wait
	}
	p.queue = p.queue[1:]
	p.count.Held -= int64(len(next.data))
	p.count.Delivered += int64(len(next.data))
	return &next, 0
}

// sleep returns false if the pipe is finished, and true when it is time to look again.
func (p *pipe) sleep(ctx context.Context, wait time.Duration) bool {
	var timeout <-chan time.Time
	if wait >= 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		timeout = timer.C
	}
	select {
	case <-ctx.Done():
		return false
	case <-timeout:
	case <-p.changed:
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.finished
}
