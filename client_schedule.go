package locker

import (
	"container/heap"
	"sync"
	"sync/atomic"
	"time"

	"github.com/golockers/locker/internal/clock"
)

// schedule calls the due method of leases at their times, each call in a goroutine of its own, with one
// heap and one timer for all leases of a client, held or taken back. So neither a request in flight nor
// a Logger or Trace function for another lease can delay the end of a lease (R2), and ten thousand
// leases need no goroutine.
type schedule struct {
	mu     sync.Mutex
	leases leaseHeap
	timer  *time.Timer
	fires  time.Time // when the timer fires; zero: it is not set
	clock  time.Time // when the two clocks were last compared

	stepped func() // called when the wall clock was stepped forward
	stopped bool
}

// wallCheck is the interval at which the wall clock is compared with the monotonic clock while leases
// are held. The monotonic clock, and every timer with it, stops while a machine sleeps: wallCheck
// bounds how late a holder learns of its lease's end after the machine wakes (R4).
const wallCheck = time.Second

// wallStep is the step of the wall clock against the monotonic clock after which every lease checks its
// deadline.
const wallStep = time.Millisecond

// set schedules the next call of l.due, and replaces an earlier time.
func (q *schedule) set(l *Lease, at time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.stopped {
		return
	}
	if l.at = at; l.index == 0 {
		heap.Push(&q.leases, l)
	} else {
		heap.Fix(&q.leases, l.index-1)
	}
	q.arm()
}

// remove removes l from the schedule. A call already begun continues.
func (q *schedule) remove(l *Lease) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if l.index != 0 && !q.stopped {
		heap.Remove(&q.leases, l.index-1)
	}
}

// stop ends the schedule: it makes no further calls.
func (q *schedule) stop() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.stopped = true
	q.leases = nil
	if q.timer != nil {
		q.timer.Stop()
	}
}

// arm makes sure that the timer fires soon enough. A timer that fires too early stays: that costs less
// than resetting it each time.
func (q *schedule) arm() {
	if len(q.leases) == 0 || !q.fires.IsZero() && !q.leases[0].at.Before(q.fires) {
		return
	}
	now := time.Now()
	at := sooner(q.leases[0].at, now.Add(wallCheck))
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
	for len(q.leases) > 0 && !q.leases[0].at.After(now) {
		go heap.Pop(&q.leases).(*Lease).due()
	}
	if step := clock.Stepped(q.clock, now); step > wallStep || step < -wallStep {
		q.clock = now
		if step > 0 {
			go q.stepped()
		}
	}
	q.arm()
}

// leaseHeap is a heap by time, for container/heap.
type leaseHeap []*Lease

func (h leaseHeap) Len() int           { return len(h) }
func (h leaseHeap) Less(i, j int) bool { return h[i].at.Before(h[j].at) }
func (h leaseHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i+1, j+1
}

func (h *leaseHeap) Push(x any) {
	l := x.(*Lease)
	*h = append(*h, l)
	l.index = len(*h)
}

func (h *leaseHeap) Pop() any {
	last := len(*h) - 1
	l := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	l.index = 0
	return l
}

// onGrid rounds at down to a multiple of grid since the client was created. Without a grid, 10,000
// leases of 30 s are renewed at 1,060 different moments in a second; with a grid of 1/300 of their
// life, at 10, and renewals of one moment share requests.
func (c *Client) onGrid(at time.Time, grid time.Duration) time.Time {
	if grid <= 0 {
		return at
	}
	return at.Add(-(at.Sub(c.made) % grid))
}

// inFlight counts goroutines, so that Close can wait for them for a while.
type inFlight struct {
	n     atomic.Int64
	none  chan struct{} // has room for one; sent to each time n becomes 0
	users atomic.Int64  // how many of them run the user's code
}

// outside runs job, which is the user's code: a Trace function or the Logger's handler. It may call
// Close.
func (f *inFlight) outside(job func()) {
	f.users.Add(1)
	defer f.users.Add(-1)
	job()
}

func (f *inFlight) add() { f.n.Add(1) }

// run runs job in a counted goroutine.
func (f *inFlight) run(job func()) {
	f.add()
	go func() {
		defer f.done()
		job()
	}()
}

func (f *inFlight) done() {
	if f.n.Add(-1) > 0 {
		return
	}
	select {
	case f.none <- struct{}{}:
	default: // the last one is not received yet
	}
}

// wait waits until nothing is in flight, or for a moment only the user's code, which may itself be the
// caller of wait. It returns false at the deadline.
func (f *inFlight) wait(deadline time.Time) bool {
	tick := time.NewTicker(lastWord / 2)
	defer tick.Stop()
	for users := 0; f.n.Load() > 0 && users < 2; {
		select {
		case <-f.none:
		case now := <-tick.C:
			if !now.Before(deadline) {
				return false
			}
			if users++; f.n.Load() > f.users.Load() {
				users = 0
			}
		}
	}
	return true
}
