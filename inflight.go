package locker

import (
	"sync"
	"time"
)

// inFlight counts goroutines, so that Close can wait for them for a while.
type inFlight struct {
	mu   sync.Mutex
	n    int
	idle chan struct{} // made by a waiter; closed when n is 0
}

func (f *inFlight) add() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.n++
}

func (f *inFlight) done() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.n--
	if f.n == 0 && f.idle != nil {
		close(f.idle)
		f.idle = nil
	}
}

// wait reports whether nothing was in flight at some moment before the deadline.
func (f *inFlight) wait(deadline time.Time) bool {
	f.mu.Lock()
	if f.n == 0 {
		f.mu.Unlock()
		return true
	}
	if f.idle == nil {
		f.idle = make(chan struct{})
	}
	idle := f.idle
	f.mu.Unlock()
	timer := time.NewTimer(time.Until(deadline))
	defer timer.Stop()
	select {
	case <-idle:
		return true
	case <-timer.C:
		return false
	}
}
