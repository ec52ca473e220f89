package cas_test

import (
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/golockers/locker/cas"
	"github.com/golockers/locker/conformance"
	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/lab"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var kinds = map[string]struct{ ages, watches bool }{
	"watched": {}, "ages": {ages: true}, "watches": {watches: true},
}

func harness(s *service, watches bool, ttl time.Duration) conformance.Harness {
	connect := func(t conformance.T, timeout time.Duration) (driver.Backend, conformance.Fault) {
		l := s.line()
		var store cas.Store = l
		if watches {
			store = watching{l}
		}
		b, err := cas.New(store, &cas.Options{Timeout: timeout})
		if err != nil {
			t.Errorf("%v", err)
			t.FailNow()
		}
		return b, l
	}
	return conformance.Harness{
		TTL: ttl,
		New: func(t conformance.T) driver.Backend {
			b, _ := connect(t, 0) // a thousand callers at once may take long on a slow machine
			return b
		},
		Cut:    func(t conformance.T) (driver.Backend, conformance.Fault) { return connect(t, time.Second) },
		Delete: func(_ conformance.T, name string) { s.delete(name) },
		Unproven: map[string]string{
			"clock-jump":   "no clock of the service is asked",
			"many-sharers": "each that comes writes the record of all, and collides with others",
		},
	}
}

func TestEveryKindInVirtualTime(t *testing.T) {
	for name, kind := range kinds {
		t.Run(name, func(t *testing.T) {
			conformance.RunVirtual(t, func(conformance.T) conformance.Harness {
				return harness(newService(kind.ages), kind.watches, 500*time.Millisecond)
			})
		})
	}
}

// In real time, and in make test: the kind that can do most. The others are played in virtual time.
func TestConformance(t *testing.T) {
	conformance.Run(t, harness(newService(true), true, 500*time.Millisecond))
}

func TestProveConformance(t *testing.T) {
	lab.NeedProve(t)
	for name, kind := range kinds {
		t.Run(name, func(t *testing.T) {
			conformance.Run(t, harness(newService(kind.ages), kind.watches, 500*time.Millisecond))
		})
	}
}
