package locker

import (
	"cmp"
	"context"
	"sync"
	"time"
)

// lines are the lines of callers of one client, one for each name in use.
// Only the head of a line talks to the service, so that a thousand callers
// cost it what one costs (R13). The place at the head is kept by the caller,
// then by its lease, until the lease is over. What is handed on is the right
// to ask, never the lock.
type lines struct {
	mu      sync.Mutex
	byName  map[string]*line
	held    int // lines whose head has a lease
	waiting int // callers who wait, the heads without a lease included
	closed  bool
}

// line is the line for one name. Its fields are guarded by lines.mu.
type line struct {
	name        string
	lease       *Lease // the head's, once it has one
	first, last *waiter

	// state is what the service has said last: ErrHeld, why it could not be
	// asked, or nil: nothing is known.
	state error
	// heard: somebody in this line was told "held", or held. Such a line sits an
	// outage out, up to patience, which is zero while there is none: a server that
	// restarts should not send all who wait away.
	heard    bool
	patience time.Time
}

// waiter is a caller behind the head.
type waiter struct {
	next, prev *waiter
	head       chan struct{} // closed when it becomes the head
	isHead     bool
}

// enter returns when the caller is at the head of the line for name. If it is
// not to wait, or ctx or the client ends first, the error says what was in
// the way.
func (ls *lines) enter(ctx context.Context, closing <-chan struct{}, name string, wait bool) (*line, error) {
	ls.mu.Lock()
	if ls.closed {
		ls.mu.Unlock()
		return nil, ErrClosed
	}
	ln := ls.byName[name]
	if ln == nil {
		if ls.byName == nil {
			ls.byName = make(map[string]*line)
		}
		ln = &line{name: name}
		ls.byName[name] = ln
		if wait {
			ls.waiting++
		}
		ls.mu.Unlock()
		return ln, nil
	}
	if !wait {
		err := ln.inTheWay()
		ls.mu.Unlock()
		return nil, cmp.Or(err, ErrHeld) // where nothing is known, who asks before is in the way
	}
	w := &waiter{head: make(chan struct{}), prev: ln.last}
	if ln.last == nil {
		ln.first = w
	} else {
		ln.last.next = w
	}
	ln.last = w
	ls.waiting++
	ls.mu.Unlock()

	var err error
	select {
	case <-w.head:
		return ln, nil
	case <-closing:
		err = ErrClosed
	case <-ctx.Done():
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.waiting--
	if err == nil {
		err = &waitError{ctx: ctxError(ctx), state: ln.inTheWay()}
	}
	if w.isHead {
		ls.advance(ln)
	} else {
		ln.unlink(w)
	}
	return nil, err
}

// leave gives up the place at the head of ln to the next in line.
func (ls *lines) leave(ln *line) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.advance(ln)
}

// toldHeld notes that the service has said "held" to the head.
func (ls *lines) toldHeld(ln *line) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ln.state, ln.heard, ln.patience = ErrHeld, true, time.Time{}
}

// outage notes why the head could not ask the service, and reports whether it is
// to go on trying: for at most patience, together with all who become the head
// meanwhile.
func (ls *lines) outage(ln *line, cause error, patience time.Duration) (sitOut bool) {
	now := time.Now()
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ln.state = cause
	if ln.patience.IsZero() {
		ln.patience = now.Add(patience)
	}
	return ln.heard && now.Before(ln.patience)
}

// hold notes the head's lease; it returns false if the client was closed.
func (ls *lines) hold(ln *line, l *Lease) bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ls.closed {
		return false
	}
	ln.lease = l
	ls.held++
	return true
}

// drop undoes hold for a lease that could not be given out after all.
func (ls *lines) drop(ln *line) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.release(ln)
}

func (ls *lines) release(ln *line) {
	if ln.lease != nil {
		ln.lease = nil
		ls.held--
	}
}

// waited notes that a head that was let in to wait does so no longer.
func (ls *lines) waited() {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.waiting--
}

// count returns how many leases are held, and how many callers wait.
func (ls *lines) count() (held, waiting int) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return ls.held, ls.waiting
}

// close refuses all who come from now on, and returns the leases held.
func (ls *lines) close() (held []*Lease) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.closed = true
	for _, ln := range ls.byName {
		if ln.lease != nil {
			held = append(held, ln.lease)
		}
	}
	return held
}

func (ls *lines) advance(ln *line) {
	if ln.lease != nil {
		ln.state, ln.heard, ln.patience = nil, true, time.Time{}
	}
	ls.release(ln)
	w := ln.first
	if w == nil {
		delete(ls.byName, ln.name)
		return
	}
	ln.unlink(w)
	w.isHead = true
	close(w.head)
}

func (ln *line) unlink(w *waiter) {
	if w.prev == nil {
		ln.first = w.next
	} else {
		w.prev.next = w.next
	}
	if w.next == nil {
		ln.last = w.prev
	} else {
		w.next.prev = w.prev
	}
	w.next, w.prev = nil, nil
}

// inTheWay is what is known to keep a caller behind the head from the lock now:
// an outage is never reported as "held" (R17).
func (ln *line) inTheWay() error {
	if ln.lease != nil {
		return ErrHeld
	}
	return ln.state
}
