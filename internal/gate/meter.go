package main

import (
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/golockers/locker/internal/stall"
)

// meter measures how slow the machine is, by a piece of work that it does again and
// again. A clock that only waits would see little: who sleeps most is woken first.
type meter struct {
	mu      sync.Mutex
	best    time.Duration // what a chunk takes on a machine that has nothing else to do
	samples []sample
	disk    time.Duration // the longest that a block took to its disk since the last sample
}

type sample struct {
	at   time.Time
	took time.Duration // all chunks
	late time.Duration // the longest that a chunk took, or a sleep took too long
	disk time.Duration
}

const (
	every  = 200 * time.Millisecond
	chunks = 10
	rounds = 400_000 // of a chunk: a millisecond or less
)

// watch begins to measure. It takes some 5 % of a core.
func watch() *meter {
	m := &meter{}
	stall.Watch(every, m.measure) // for as long as the program
	if f, err := os.CreateTemp("", "gate-"); err == nil {
		_ = os.Remove(f.Name())
		stall.Every(every, func() { m.write(f) })
	}
	return m
}

// write measures the disk, which servers wait for that have work enough to be run.
func (m *meter) write(f *os.File) {
	began := time.Now()
	_, _ = f.WriteAt(make([]byte, 4<<10), 0)
	_ = f.Sync()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.disk = max(m.disk, time.Since(began))
}

func (m *meter) measure(late time.Duration) {
	began := time.Now()
	s := sample{at: began, late: late}
	best := time.Hour
	for range chunks {
		from := time.Now()
		work()
		took := time.Since(from)
		best, s.late = min(best, took), max(s.late, took)
	}
	s.took = time.Since(began)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.best == 0 || best < m.best {
		m.best = best
	}
	s.disk, m.disk = m.disk, 0
	m.samples = append(m.samples, s)
}

var sink uint64

func work() {
	x := sink | 1
	for range rounds {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
	}
	sink = x
}

// slowness is how slow the machine was.
type slowness struct {
	longest time.Duration // that it did not run one goroutine
	factor  float64       // by which work took longer, on average of the worst three seconds
	disk    time.Duration // the longest that the disk took
}

const (
	longStall  = 200 * time.Millisecond
	slowFactor = 10 // some ten that work for each core: packages beside each other are not so many
	window     = 15 // samples
	longWrite  = time.Second
)

// long reports whether bounds that are fair on a machine that works can be missed.
func (s slowness) long() bool {
	return s.longest >= longStall || s.factor >= slowFactor || s.disk >= longWrite
}

func (s slowness) String() string {
	return fmt.Sprintf("it stood still for up to %v, its disk for up to %v, and it was up to %.1f times slower than it can be",
		s.longest.Round(time.Millisecond), s.disk.Round(time.Millisecond), s.factor)
}

// since returns how slow the machine was from then to now.
func (m *meter) since(from time.Time) (s slowness) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var sum time.Duration
	for i, sample := range m.samples {
		sum += sample.took
		if i >= window {
			sum -= m.samples[i-window].took
		}
		if sample.at.Before(from) {
			continue
		}
		s.longest, s.disk = max(s.longest, sample.late), max(s.disk, sample.disk)
		n := min(i+1, window) // also of what was before, so that one hiccup in a brief test is not all there is
		s.factor = max(s.factor, float64(sum)/float64(time.Duration(n*chunks)*m.best))
	}
	return s
}
