package conformance_test

import (
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/golockers/locker/conformance"
	"github.com/golockers/locker/internal/lab"
)

// inVirtualTime is [synctest.Test] on one processor; it is not for parallel tests. In a bubble, a timer that is
// over when it is set, or when its channel is looked at, fires on the goroutine that does so. All such
// goroutines use one context of the race detector, and two threads that use it at once end the process
// (Go 1.26).
func inVirtualTime(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	synctest.Test(t, f)
}

// prove runs one check against the simulated service in virtual time.
func prove(t *testing.T, f flaw, k kind, c conformance.OneCheck) (r conformance.Result) {
	t.Helper()
	inVirtualTime(t, func(t *testing.T) {
		s := newService(f)
		r = conformance.Prove(t.Context(), s.harness(k, time.Second), c)
		close(s.end)
		time.Sleep(time.Minute) // what hung on purpose ends
	})
	return r
}

func TestGoodBackendsPassEveryCheck(t *testing.T) {
	for _, k := range []kind{poor, hasty, rich, queued, tokenless, watched, aged} {
		for _, c := range conformance.Checks() {
			t.Run(k.name+"/"+c.Name, func(t *testing.T) {
				r := prove(t, none, k, c)
				want := conformance.Passed
				if r.Outcome == conformance.Unclaimed && slices.Contains([]string{"restart", "failover", "server-crashes",
					"clock-jump", "prompt"}, c.Name) {
					want = conformance.Unclaimed
					assert.NotEmpty(t, r.Reason)
				}
				assert.Equal(t, want, r.Outcome, "%v", r.Failures)
				for _, line := range r.Log {
					t.Log(line)
				}
			})
		}
	}
}

// In real time, the race detector and a busy machine have their say, too.
func TestProveGoodBackendPassesInRealTime(t *testing.T) {
	lab.NeedProve(t)
	s := newService(none)
	defer close(s.end)
	conformance.Run(t, s.harness(rich, 300*time.Millisecond))
}
