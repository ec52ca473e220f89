package locker

import (
	"container/heap"
	"sync"
	"time"

	"github.com/golockers/locker/internal/clock"
)

// schedule calls what is due, at its time and in a goroutine of its own: one heap
// and one timer for all of a client's leases and take-backs. So no request in
// flight can delay the end of a lease (R2), nor can a Logger or Trace function that
// is told of another's, and ten thousand leases have no goroutine.
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

// scheduled is something that has a time at which it wants to be called.
type scheduled interface {
	due()
	entry() *event
}

// event is the part of a scheduled that belongs to the schedule.
type event struct {
	at    time.Time
	index int // in the heap, plus 1; 0: not in it
}

func (e *event) entry() *event { return e }

// wallCheck is how often the wall clock is compared with the monotonic one
// while leases are held. The monotonic clock, and every timer with it, stops
// while a machine sleeps: this bounds how late the end of a lease is told
// after it woke (R4).
const wallCheck = time.Second

// wallStep is the change of the wall clock against the monotonic one that
// makes every lease look at its deadline again.
const wallStep = time.Millisecond

// set makes s be called at the given time instead of whatever was set before.
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

// remove takes s out of the schedule. A call that has already begun goes on.
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

// arm makes sure that the timer fires soon enough. It leaves a timer that
// would fire too early alone: that costs less than resetting it each time.
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

// onGrid returns the last time not after at that is a multiple of grid away from
// when the client was made. Without a grid, 10,000 leases of 30 s are renewed at
// 1,060 moments in a second, and with one of 1/300 of their life at 10: those of a
// moment share requests.
func (c *Client) onGrid(at time.Time, grid time.Duration) time.Time {
	if grid <= 0 {
		return at
	}
	return at.Add(-(at.Sub(c.made) % grid))
}

// maxWorkers bounds how many take-backs are under way at once. There can be
// any number of them while a service hangs, unlike renewals and releases, of which
// there are as many as leases: these get a goroutine each, so that a server that
// hangs does not keep the leases of another one from being renewed (R21).
const maxWorkers = 512

// workers runs take-backs in goroutines that exist only while there is work.
type workers struct {
	mu      sync.Mutex
	queue   []func()
	running int
	busy    inFlight
}

// do runs job soon, in the order of the calls, and does not wait for it.
func (w *workers) do(job func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.running == maxWorkers {
		w.queue = append(w.queue, job)
		return
	}
	w.running++
	w.busy.run(func() {
		for job != nil {
			job()
			job = w.next()
		}
	})
}

func (w *workers) next() func() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.queue) == 0 {
		w.queue = nil
		w.running--
		return nil
	}
	job := w.queue[0]
	w.queue[0] = nil
	w.queue = w.queue[1:]
	return job
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

// run runs job in a goroutine that is counted.
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
