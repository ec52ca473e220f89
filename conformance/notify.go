package conformance

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/golockers/locker"
)

func notifyChecks() []check {
	return []check{
		{
			Name: "notify",
			Promise: "A release after Notify has returned is told, and one that a broken connection hid is " +
				"made up for (R14).",
			unasked: func(s subject) string {
				if !s.notifies {
					return "the backend is no Notifier"
				}
				return ""
			},
			run: checkNotify,
		},
	}
}

func checkNotify(s *trial) {
	b := s.backend()
	other := s.backend()
	for i := range 10 {
		name := s.name(fmt.Sprintf("notify-%d", i))
		grant := s.acquire(other, s.request(name, s.long))
		told, stop := s.listen(b, name)
		s.refusedWaiting(b, name)
		s.release(grant.Hold)
		if !s.eventually(s.prompt(), told) {
			s.broken(fmt.Sprintf("%v after a release, wake was not called", s.prompt()),
				"Notify returns before the service has confirmed it, or the release tells another channel")
		}
		stop()
	}
	// All who listen are told, by one client and by several.
	name := s.name("notify-all")
	grant := s.acquire(other, s.request(name, s.long))
	var all []func() bool
	for _, listener := range []locker.Backend{b, b, b, s.backend(), s.backend()} {
		told, stop := s.listen(listener, name)
		defer stop()
		s.refusedWaiting(listener, name)
		all = append(all, told)
	}
	s.release(grant.Hold)
	for i, told := range all {
		if !s.eventually(s.prompt(), told) {
			s.broken(fmt.Sprintf("of %d who listened for one name, number %d was not told of a release",
				len(all), i+1),
				"a wake-up goes to one listener and not to all: each of them may be the one whose turn it is")
		}
	}
	if s.h.Cut == nil {
		return
	}
	b, fault := s.cut()
	name = s.name("notify-cut")
	grant = s.acquire(other, s.request(name, s.long))
	told, stop := s.listen(b, name)
	defer stop()
	s.refusedWaiting(b, name)
	both(fault, Reset)
	s.release(grant.Hold)
	time.Sleep(settle)
	both(fault, Pass)
	if !s.eventually(s.patience(), told) {
		s.broken("a release that happened while the connection was broken was not made up for",
			"when it subscribes again, the backend does not wake those who may have missed something")
	}
	both(fault, Hold)
	stopped := make(chan struct{})
	s.spawn(func() {
		stop()
		close(stopped)
	})
	inTime := s.eventually(s.ttl/2, func() bool {
		select {
		case <-stopped:
			return true
		default:
			return false
		}
	})
	both(fault, Pass)
	if !inTime {
		s.broken(fmt.Sprintf("while the service was silent, the stop of Notify took more than %v", s.ttl/2),
			"it waits for the service: a waiter that leaves would wait, too")
	}
}

// listen returns whether wake was called since the call of listen.
func (s *trial) listen(b locker.Backend, name string) (told func() bool, stop func()) {
	s.Helper()
	var wakes atomic.Int32
	stop, err := b.(locker.Notifier).Notify(s.within(s.patience()), name, func() { wakes.Add(1) })
	if err != nil || stop == nil {
		s.broken(fmt.Sprintf("Notify failed: %v", err), "the service cannot be reached, or refuses to tell")
	}
	before := wakes.Load()
	return func() bool { return wakes.Load() > before }, stop
}

// refusedWaiting asks for a name that is held, as who waits for it does.
func (s *trial) refusedWaiting(b locker.Backend, name string) {
	s.Helper()
	req := s.request(name, s.long)
	req.Wait = true
	if _, err := b.Acquire(s.within(s.patience()), req); !errors.Is(err, locker.ErrHeld) {
		s.broken(fmt.Sprintf("Acquire of a name that is held, with Wait set, returned %v", err),
			"a backend with a Notifier does not wait itself: it returns ErrHeld at once")
	}
}
