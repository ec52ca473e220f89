package batch

import (
	"context"
	"runtime"
	"slices"
	"strings"
	"time"
)

// flight is a round trip.
type flight[Q, A any] struct {
	since   time.Time
	calls   []*call[Q, A] // none: the caller waits in its own goroutine
	callers int           // that have not left
	ctx     context.Context
	cancel  context.CancelFunc
}

// room reports whether a flight of so many may take off, beside fewer than that many others. b.mu is held.
func (b *Batcher[Q, A]) room(now time.Time, requests, flights int) bool {
	open, quick, others := 0, 0, 0
	var next time.Time // when there is room
	for _, f := range b.flights {
		open++
		others += max(1, f.callers)
		if now.Sub(f.since) < b.opts.Slow {
			if quick++; quick == 1 {
				next = f.since.Add(b.opts.Slow)
			}
		}
	}
	switch {
	case b.opts.Most > 0 && open >= b.opts.Most:
		return false
	case open == 0, !b.opts.Patient && quick < flights, b.opts.Patient && open < flights && requests >= others:
		return true
	case requests == 0:
		return false
	case b.opts.Patient:
		if next = b.waiting[0].since.Add(time.Duration(open) * b.opts.Slow); !now.Before(next) {
			return true
		}
	}
	if !b.waking {
		b.waking = true
		time.AfterFunc(next.Sub(now), func() {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.waking = false
			b.launch(time.Now())
		})
	}
	return false
}

// launch starts a flight for those that wait, if it may. b.mu is held.
func (b *Batcher[Q, A]) launch(now time.Time) {
	if !b.starting && b.may(now) {
		b.starting = true
		b.busy.Go(b.fly)
	}
}

// may reports whether a flight may take off for those that wait. b.mu is held.
func (b *Batcher[Q, A]) may(now time.Time) bool {
	requests := len(b.waiting) - b.left
	return requests > 0 && !b.ended && b.room(now, requests, b.opts.Flights)
}

// fly makes round trips for those that wait, for as long as there are any.
func (b *Batcher[Q, A]) fly() {
	for {
		b.gather()
		b.mu.Lock()
		b.starting = false
		now := time.Now()
		if !b.may(now) {
			b.mu.Unlock()
			return
		}
		f, requests := b.board(now)
		b.launch(now) // for what does not go with these
		b.mu.Unlock()
		values, err := b.send(f.ctx, requests)
		b.mu.Lock()
		for i, c := range f.calls {
			if c.over { // its caller has left, or the Batcher's life has ended
				continue
			}
			c.over, c.answer, c.err = true, Answer[A]{Since: f.since, Sent: true}, err
			if err == nil {
				c.answer.Value = values[i]
			}
			c.done <- struct{}{}
		}
		f.calls = nil // their callers use them again
		f.cancel()
		b.flights = slices.DeleteFunc(b.flights, func(other *flight[Q, A]) bool { return other == f })
		ahead := b.starting // else those that it has answered ask again, and share the next one
		b.starting = true
		b.mu.Unlock()
		if ahead {
			return
		}
	}
}

// board returns a flight that is under way from now on. b.mu is held.
func (b *Batcher[Q, A]) board(now time.Time) (f *flight[Q, A], requests []Q) {
	f = &flight[Q, A]{calls: b.share(), since: now}
	f.callers = len(f.calls)
	f.ctx, f.cancel = context.WithTimeout(b.life, b.opts.Timeout)
	requests = make([]Q, len(f.calls))
	for i, c := range f.calls {
		c.flight, requests[i] = f, c.request
	}
	b.flights = append(b.flights, f)
	return f, requests
}

// land takes a flight off the list.
func (b *Batcher[Q, A]) land(f *flight[Q, A]) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.flights = slices.DeleteFunc(b.flights, func(other *flight[Q, A]) bool { return other == f })
	b.launch(time.Now())
}

// gather lets the goroutines run that were just answered, or are about to ask, for as long as more come:
// their requests share the flight.
func (b *Batcher[Q, A]) gather() {
	for range maxYields {
		before := b.came.Load()
		runtime.Gosched()
		if b.came.Load() == before {
			return
		}
	}
}

// maxYields is how often a flight lets others run before it takes off: of 256 callers 20 and more share a
// round trip then, and without it 4.
const maxYields = 8

// share takes those that go now from the line. It looks no further than it has to: thousands may be waiting.
// b.mu is held.
func (b *Batcher[Q, A]) share() (now []*call[Q, A]) {
	var passed []*call[Q, A]
	var keys map[string]bool
	if b.key != nil {
		keys = make(map[string]bool)
	}
	n := 0
	for ; n < len(b.waiting) && len(now) < b.opts.Max; n++ {
		c := b.waiting[n]
		if c.over {
			b.left--
			continue
		}
		if b.key != nil {
			if key := b.key(c.request); keys[key] {
				passed = append(passed, c)
				continue
			} else {
				keys[key] = true
			}
		}
		now = append(now, c)
	}
	copy(b.waiting[n-len(passed):], passed)
	clear(b.waiting[:n-len(passed)])
	b.waiting = b.waiting[n-len(passed):]
	if b.key != nil {
		slices.SortFunc(now, func(x, y *call[Q, A]) int {
			return strings.Compare(b.key(x.request), b.key(y.request))
		})
	}
	return now
}
