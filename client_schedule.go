package locker

import (
	"container/heap"
	"sync"
	"sync/atomic"
	"time"

	"github.com/golockers/locker/internal/clock"
)

// schedule calls due of leases at their times, each in a goroutine of its own, with one heap
// and one timer for all leases of a client, held or taken back. So neither a request in
// flight nor a Logger or Trace function that handles the end of another lease can
// delay the end of a lease (R2), and ten thousand leases need no goroutine.
type schedule struct {
	mu     sync.Mutex
	leases leaseHeap
	timer  *time.Timer
	fires  time.Time // when the timer will; zero: it is not set
	clock  time.Time // when both clocks were compared last

	stepped func() // called when the wall clock was stepped forward
	stopped bool
}

// wallCheck is the time between two comparisons of the wall clock with the monotonic
// clock while leases are held. The monotonic clock, and every timer with it, stops
// while a machine sleeps: wallCheck bounds how late a holder learns of the end of its
// lease after the machine woke (R4).
const wallCheck = time.Second

// wallStep is the step of the wall clock against the monotonic clock after which
// every lease looks at its deadline again.
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

// remove removes l from the schedule. A call that has already begun goes on.
func (q *schedule) remove(l *Lease) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if l.index != 0 && !q.stopped {
		heap.Remove(&q.leases, l.index-1)
	}
}

// stop ends the schedule: nothing is called any more.
func (q *schedule) stop() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.stopped = true
	q.leases = nil
	if q.timer != nil {
		q.timer.Stop()
	}
}

// arm makes sure that the timer fires soon enough. It does not move a timer that
// fires too early: that costs less than resetting it each time.
func (q *schedule) arm() {
	if len(q.leases) == 0 || !q.fires.IsZero() && !q.leases[0].at.Before(q.fires) {
		return
	}
	at, now := q.leases[0].at, time.Now()
	if check := now.Add(wallCheck); check.Before(at) {
		at = check
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

// onGrid returns the latest time that is not after at and is a multiple of grid after the
// client was made. Without a grid, 10,000 leases of 30 s are renewed at 1,060 different moments
// in a second; with a grid of 1/300 of their life, at 10, and those of one moment share requests.
func (c *Client) onGrid(at time.Time, grid time.Duration) time.Time {
	if grid <= 0 {
		return at
	}
	return at.Add(-(at.Sub(c.made) % grid))
}

// inFlight counts goroutines, so that Close can wait for them for a while.
type inFlight struct {
	n     atomic.Int64
	none  chan struct{} // has room for one; told each time that n has become 0
	users atomic.Int64  // of them run code of the user
}

// outside runs f, which is the user's: a function of Trace, or the handler of the Logger. It may call Close.
func (f *inFlight) outside(job func()) {
	f.users.Add(1)
	defer f.users.Add(-1)
	job()
}

func (f *inFlight) add() { f.n.Add(1) }

// run runs job in a goroutine, and counts it.
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
	default: // nobody has looked since it was told last
	}
}

// wait waits until nothing is in flight, or for a moment nothing but code of the user, which may be
// what waits; it returns false at the deadline.
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
