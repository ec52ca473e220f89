package etcd

import (
	"sync"
	"time"
)

// alarms call functions later, for requests that take long. Few do, and a
// timer for each request, which is most often the next of all to fire,
// makes the runtime wake a thread for it: these share one, and are late by up
// to a tick.
type alarms struct {
	mu      sync.Mutex
	first   *alarm // of a list without an order
	ticking bool
}

// alarm is one function to be called later. Its zero value is off.
type alarm struct {
	at         time.Time
	ring       func() // does not block
	next, prev *alarm
	on         bool
}

const tick = 50 * time.Millisecond

// set makes ring be called when d has passed, unless off is called before. a is off.
func (as *alarms) set(a *alarm, d time.Duration, ring func()) {
	a.at, a.ring = time.Now().Add(d), ring
	as.mu.Lock()
	defer as.mu.Unlock()
	a.on, a.next = true, as.first
	if as.first != nil {
		as.first.prev = a
	}
	as.first = a
	if !as.ticking {
		as.ticking = true
		time.AfterFunc(tick, as.look)
	}
}

func (as *alarms) off(a *alarm) {
	as.mu.Lock()
	defer as.mu.Unlock()
	as.unlink(a)
}

// unlink makes a off. as.mu is held.
func (as *alarms) unlink(a *alarm) {
	if !a.on {
		return
	}
	if a.prev == nil {
		as.first = a.next
	} else {
		a.prev.next = a.next
	}
	if a.next != nil {
		a.next.prev = a.prev
	}
	a.on, a.next, a.prev = false, nil, nil
}

func (as *alarms) look() {
	now := time.Now()
	var due []func()
	as.mu.Lock()
	for a := as.first; a != nil; {
		next := a.next
		if !a.at.After(now) {
			due = append(due, a.ring)
			as.unlink(a)
		}
		a = next
	}
	as.ticking = as.first != nil
	if as.ticking {
		time.AfterFunc(tick, as.look)
	}
	as.mu.Unlock()
	for _, ring := range due {
		ring()
	}
}
