package locker

import (
	"container/heap"
	"sync"
	"time"

	"github.com/golockers/locker/internal/clock"
)

// schedule makes calls at their times, each in a goroutine of its own, with one heap
// and one timer for all leases and take-backs of a client. So neither a request in
// flight nor a Logger or Trace function that handles the end of another lease can
// delay the end of a lease (R2), and ten thousand leases need no goroutine.
type schedule struct {
	mu     sync.Mutex
	events eventHeap
	timer  *time.Timer
	fires  time.Time // when the timer will; zero: it is not set
	clock  time.Time // when both clocks were compared last
	// stepped is called when the wall clock was stepped forward.
	stepped func()
	stopped bool
}

// scheduled is a lease or a take-back that the schedule calls at its time.
type scheduled interface {
	due()
	entry() *event
}

// event is the schedule's own part of a scheduled.
type event struct {
	at    time.Time
	index int // in the heap, plus 1; 0: not in it
}

func (e *event) entry() *event { return e }

// wallCheck is the time between two comparisons of the wall clock with the monotonic
// clock while leases are held. The monotonic clock, and every timer with it, stops
// while a machine sleeps: wallCheck bounds how late a holder learns of the end of its
// lease after the machine woke (R4).
const wallCheck = time.Second

// wallStep is the step of the wall clock against the monotonic clock after which
// every lease looks at its deadline again.
const wallStep = time.Millisecond

// set schedules the next call of s, and replaces an earlier time.
func (q *schedule) set(s scheduled, at time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.stopped {
		return
	}
	e := s.entry()
	e.at = at
	if e.index == 0 {
		heap.Push(&q.events, s)
	} else {
		heap.Fix(&q.events, e.index-1)
	}
	q.arm(time.Now())
}

// remove removes s from the schedule. A call that has already begun goes on.
func (q *schedule) remove(s scheduled) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if e := s.entry(); e.index != 0 && !q.stopped {
		heap.Remove(&q.events, e.index-1)
	}
}

// stop ends the schedule: nothing is called any more.
func (q *schedule) stop() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.stopped = true
	q.events = nil
	if q.timer != nil {
		q.timer.Stop()
	}
}

// arm makes sure that the timer fires soon enough. It does not move a timer that
// fires too early: that costs less than resetting it each time.
func (q *schedule) arm(now time.Time) {
	if len(q.events) == 0 {
		return
	}
	at := q.events[0].entry().at
	if check := now.Add(wallCheck); check.Before(at) {
		at = check
	}
	if !q.fires.IsZero() && !at.Before(q.fires) {
		return
	}
	if q.clock.IsZero() {
		q.clock = now
	}
	q.fires = at
	if q.timer == nil {
		q.timer = time.AfterFunc(at.Sub(now), q.run)
	} else {
		q.timer.Reset(at.Sub(now))
	}
}

// run is called by the timer.
func (q *schedule) run() {
	now := time.Now()
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.stopped {
		return
	}
	q.fires = time.Time{}
	for len(q.events) > 0 && !q.events[0].entry().at.After(now) {
		go heap.Pop(&q.events).(scheduled).due()
	}
	if step := clock.Stepped(q.clock, now); step > wallStep || step < -wallStep {
		q.clock = now
		if step > 0 {
			go q.stepped()
		}
	}
	q.arm(now)
}

// eventHeap is a heap by time, for container/heap.
type eventHeap []scheduled

func (h eventHeap) Len() int           { return len(h) }
func (h eventHeap) Less(i, j int) bool { return h[i].entry().at.Before(h[j].entry().at) }
func (h eventHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].entry().index, h[j].entry().index = i+1, j+1
}

func (h *eventHeap) Push(x any) {
	s := x.(scheduled)
	*h = append(*h, s)
	s.entry().index = len(*h)
}

func (h *eventHeap) Pop() any {
	last := len(*h) - 1
	s := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	s.entry().index = 0
	return s
}

// onGrid returns the latest time that is not after at and is a multiple of grid after
// the client was made. Without a grid, 10,000 leases of 30 s are renewed at 1,060
// different moments in a second; with a grid of 1/300 of their life, at 10. Renewals
// at the same moment share requests.
func (c *Client) onGrid(at time.Time, grid time.Duration) time.Time {
	if grid <= 0 {
		return at
	}
	return at.Add(-(at.Sub(c.made) % grid))
}

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

// run runs job in a goroutine, and counts it.
func (f *inFlight) run(job func()) {
	f.add()
	go func() {
		defer f.done()
		job()
	}()
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

// wait waits until nothing is in flight; it returns false at the deadline.
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
