package redlock_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/redlock"
)

// lockWhenGuardEnds takes a lock as soon as new or restarted nodes vote.
func lockWhenGuardEnds(t *testing.T, b *redlock.Backend, name string) (g locker.Grant) {
	t.Helper()
	within(t, 3*guardTTL, "they vote", func() bool {
		var err error
		g, err = b.Acquire(t.Context(), request(name, guardTTL))
		return err == nil
	})
	return g
}

// A server counts its uptime in whole seconds of its clock: one that was started
// just before the end of a second soon says that it has been up for one. Who
// believes that ends the guard while a lock that was forgotten is still held.
func TestGuardAllowsForUptimeInWholeSeconds(t *testing.T) {
	s := start(t, 1)
	a := s.backend(t, redlock.Options{MaxTTL: guardTTL})
	for range 10 {
		release(t, lockWhenGuardEnds(t, a, "warm"))
		// So late in a second that the server is up just before the next. Whether it was is looked at below.
		now := time.Now()
		time.Sleep(now.Truncate(time.Second).Add(1800 * time.Millisecond).Sub(now))
		g := acquire(t, a, "x", guardTTL)
		killed := time.Now()
		s.servers[0].Restart(t)
		within(t, 5*time.Second, "it says that it has been up for a second", func() bool {
			return s.servers[0].Info(t, "server")["uptime_in_seconds"] != "0"
		})
		if took := time.Since(killed); took > 600*time.Millisecond {
			t.Logf("after %v, which is too true: once more", took)
			continue
		}
		b := s.backend(t, redlock.Options{MaxTTL: guardTTL}) // who has not seen the run before
		lockWhenGuardEnds(t, b, "x")
		left := time.Until(g.Validity.Until())
		assert.LessOrEqual(t, left, time.Duration(0), "two holders")
		return
	}
	require.Fail(t, "not once in ten times was the server started just before the end of a second")
}
