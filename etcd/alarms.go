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
	set     map[*alarm]struct{}
	ticking bool
}

type alarm struct {
	at   time.Time
	ring func() // does not block
}

const tick = 50 * time.Millisecond

// after makes ring be called when d has passed, unless off is called before.
func (as *alarms) after(d time.Duration, ring func()) *alarm {
	a := &alarm{at: time.Now().Add(d), ring: ring}
	as.mu.Lock()
	defer as.mu.Unlock()
	if as.set == nil {
		as.set = make(map[*alarm]struct{})
	}
	as.set[a] = struct{}{}
	if !as.ticking {
		as.ticking = true
		time.AfterFunc(tick, as.look)
	}
	return a
}

func (as *alarms) off(a *alarm) {
	as.mu.Lock()
	defer as.mu.Unlock()
	delete(as.set, a)
}

func (as *alarms) look() {
	now := time.Now()
	var due []*alarm
	as.mu.Lock()
	for a := range as.set {
		if !a.at.After(now) {
			due = append(due, a)
			delete(as.set, a)
		}
	}
	as.ticking = len(as.set) > 0
	if as.ticking {
		time.AfterFunc(tick, as.look)
	}
	as.mu.Unlock()
	for _, a := range due {
		a.ring()
	}
}
