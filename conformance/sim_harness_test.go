package conformance_test

import (
	"context"
	"time"

	"github.com/golockers/locker"
	"github.com/golockers/locker/cas"
	"github.com/golockers/locker/conformance"
	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/locktest"
)

// harness returns everything that the suite can ask for of the simulated
// service.
func (s *service) harness(k kind, ttl time.Duration) conformance.Harness {
	h := conformance.Harness{
		TTL: ttl,
		New: func(conformance.T) driver.Backend { return newClient(s, k).backend() },
		Cut: func(conformance.T) (driver.Backend, conformance.Fault) {
			c := newClient(s, k)
			return c.backend(), c.net
		},
		Pair: func(conformance.T) (a, b driver.Backend) {
			one, other := newClient(s, k), newClient(s, k)
			other.net = one.net
			return one.backend(), other.backend()
		},
		OffClock: func(_ conformance.T, d time.Duration) driver.Backend {
			c := newClient(s, k)
			c.off = d
			return c.backend()
		},
		Delete: func(_ conformance.T, name string) {
			s.do(func() { s.evict(s.look(name), -1); s.look(name).entry = cas.Entry{} })
		},
		Restart:   func(conformance.T) { s.restart() },
		Failover:  func(conformance.T) { s.restart() },
		Crash:     func(_ conformance.T, n int) func() { return s.crash(n, crashTakesAll) },
		Hang:      func(_ conformance.T, n int) func() { return s.crash(n, hangTakesAll) },
		JumpClock: func(_ conformance.T, d time.Duration) { s.jumpClock(d) },
		Left:      func(_ conformance.T, name string) []string { return s.left(name) },
		URL:       "sim://",
		Open: conformance.OpenWith(driver.Openers{"sim": func(
			_ context.Context, u *driver.URL, _ driver.Settings) (driver.Backend, error) {
			if s.flaw == opensFirst && u.Param("no_such_parameter", "") != "" {
				return nil, locker.ErrUnavailable
			}
			if err := u.Check(); err != nil {
				return nil, err
			}
			if s.flaw == opensAnother {
				return newClient(newService(none), k).backend(), nil
			}
			return newClient(s, k).backend(), nil
		}}),
	}
	h.Sessions = k.queued
	if k.stores {
		h.Unproven = map[string]string{"many-sharers": "each writes a record of all, again and again in the way of others"}
	}
	if k.notices {
		h.Victim = func(t conformance.T, name string, ttl time.Duration) (kill func()) {
			c := newClient(s, k)
			victim := locktest.Must(locker.New(c.backend(), &locker.Options{TTL: ttl}))
			t.Cleanup(func() {
				_ = victim.Close()
				_ = c.Close()
			})
			if _, err := victim.TryLock(t.Context(), name); err != nil {
				t.Errorf("the victim got no lock: %v", err)
				t.FailNow()
			}
			return func() {
				c.net.Requests(conformance.Reset)
				if s.flaw != deathUnnoticed {
					s.do(func() { s.ended(c) })
				}
			}
		}
	}
	return h
}
