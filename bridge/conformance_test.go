package bridge_test

import (
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/golockers/locker/bridge"
	"github.com/golockers/locker/conformance"
	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/locktest"
	"github.com/golockers/locker/internal/memlock"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

// Two in one process: nothing fails here but what is the pair's own.
func TestConformanceOfMemory(t *testing.T) {
	of := func(old, young *memlock.Backend) conformance.Harness {
		return conformance.Harness{
			TTL: 500 * time.Millisecond, // nothing is far away
			New: func(conformance.T) driver.Backend {
				return locktest.Must(bridge.New(fake{Backend: old}, fake{Backend: young}))
			},
			Delete: func(_ conformance.T, name string) {
				old.Lose(name)
				young.Lose(name)
			},
			Unproven: unproven,
		}
	}
	h := of(memlock.New(false), memlock.New(true))
	// With one that never ends a lock by itself, what is lost stays there until it is undone.
	h.Virtual = func(conformance.T) conformance.Harness { return of(memlock.New(true), memlock.New(true)) }
	conformance.Run(t, h)
}

// unproven: a pair with MinHold does not wait for its second service while it has the first, and keeps the
// lock for up to a TTL longer; to a label it adds which services it is of.
var unproven = map[string]string{
	"histories-min-hold": "it is kept longer by up to a TTL: tests of it are in minhold_test.go",
	"histories-labels":   "long ones are cut",
}
