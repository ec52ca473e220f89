package redlock_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/internal/locktest"
	"github.com/golockers/locker/internal/redisnode"
	"github.com/golockers/locker/redlock"
)

const guardTTL = 3 * time.Second

// lockOnThree has a client take a lock on the nodes 1, 2 and 3 of five alone,
// and restarts the third empty while it is held.
func lockOnThree(t *testing.T, o redlock.Options) (s *nodes, b *redlock.Backend, g driver.Grant) {
	s = start(t, 5)
	a, b := s.through(t, o), s.backend(t, o)
	// Until the guard lets new servers vote.
	for _, c := range []*redlock.Backend{a, b} {
		within(t, 3*guardTTL, "all five vote", func() bool {
			g, err := locktest.Ask(t.Context(), c, request("warm", time.Second))
			if err == nil {
				release(t, g)
			}
			for _, n := range c.Nodes() {
				if !n.Ready {
					return false
				}
			}
			return err == nil
		})
	}
	s.proxies[3].Set(lab.Reset)
	s.proxies[4].Set(lab.Reset)
	g = acquire(t, a, "x", guardTTL)
	within(t, 30*time.Second, "three have it", func() bool { return s.holders(t, "x") == 3 })
	s.servers[2].Restart(t)
	return s, b, g
}

// The failure that the guard is there for: without it, a node that was
// restarted empty votes again for a lock that is still held.
func TestWithoutRestartGuardTwoHold(t *testing.T) {
	s, b, g := lockOnThree(t, redlock.Options{NoRestartGuard: true})
	_ = s
	second, err := locktest.Ask(t.Context(), b, request("x", guardTTL))
	require.NoError(t, err, "the test does not show what it is to show")
	assert.True(t, time.Now().Before(g.Validity.Since.Add(guardTTL)), "the first lease is over")
	release(t, second)
}

// With the guard there is one holder for as long as its lease is valid, and
// the other gets the lock soon after.
func TestRestartGuardKeepsOneHolder(t *testing.T) {
	t.Parallel()
	s, b, g := lockOnThree(t, redlock.Options{MaxTTL: guardTTL})
	until := g.Validity.Until()
	refusals := 0
	for {
		second, err := locktest.Ask(t.Context(), b, request("x", guardTTL))
		if err == nil {
			assert.False(t, time.Now().Before(until), "two holders")
			release(t, second)
			break
		}
		refusals++
		require.Less(t, time.Since(until), 2*guardTTL, err)
		time.Sleep(20 * time.Millisecond)
	}
	assert.Positive(t, refusals)
	within(t, 2*guardTTL, "the node votes again", func() bool {
		release(t, acquire(t, b, "y", guardTTL))
		return b.Nodes()[2].GuardedFor == 0 && s.holders(t, "y") == 0
	})
}

// New servers do not vote for as long as the longest TTL, and the error says
// which and for how long.
func TestNewServersAreGuarded(t *testing.T) {
	s := start(t, 3)
	b := s.backend(t, redlock.Options{MaxTTL: 30 * time.Second})
	_, err := locktest.Ask(t.Context(), b, request("x", time.Second))
	require.ErrorIs(t, err, driver.ErrUnavailable)
	for _, r := range s.servers {
		assert.Contains(t, err.Error(), r.Addr())
	}
	assert.Contains(t, err.Error(), "restart guard of 30s")
	assert.Zero(t, s.holders(t, "x"))
	c, err := locker.Open(t.Context(), s.url(), nil, redlock.Openers)
	require.NoError(t, err, "to open is to connect")
	require.NoError(t, c.Close())

	_, err = locktest.Ask(t.Context(), b, request("x", time.Minute))
	require.ErrorIs(t, err, driver.ErrInvalid, "a TTL above what the guard rests on")
}

// A clock that is stepped forward makes a fresh server look old. Who has seen
// the run before it knows better.
func TestGuardDoesNotBelieveASteppedClock(t *testing.T) {
	s := start(t, 1, lab.WithClock())
	s.servers[0].JumpClock(t, time.Hour) // on its own, a new server is taken for an old one
	b := s.backend(t, redlock.Options{MaxTTL: 10 * time.Second})
	g, err := locktest.Ask(t.Context(), b, request("x", 10*time.Second))
	require.NoError(t, err, "uptime does not follow the wall clock any more: this test tests nothing")
	s.servers[0].Kill()
	s.servers[0].Restart(t)
	s.servers[0].JumpClock(t, time.Hour)
	_, err = locktest.Ask(t.Context(), b, request("x", 10*time.Second))
	require.ErrorIs(t, err, driver.ErrUnavailable)
	assert.Contains(t, err.Error(), "restart guard")
	_ = g
}

// A server that does not fsync each write, always, may have forgotten some after a crash of its
// machine: it is guarded.
func TestServersThatDoNotAlwaysFsyncAreGuarded(t *testing.T) {
	s := durable(t, 1)
	release(t, acquire(t, s.backend(t, redlock.Options{}), "x", time.Second))
	for setting, value := range map[string]string{"no-appendfsync-on-rewrite": "yes",
		"appendfsync": "everysec", "appendonly": "no"} {
		before := s.servers[0].MustDo(t, "CONFIG", "GET", setting).([]any)[1]
		s.servers[0].MustDo(t, "CONFIG", "SET", setting, value)
		_, err := s.backend(t, redlock.Options{}).Acquire(t.Context(), request("x", time.Second))
		require.ErrorIs(t, err, driver.ErrUnavailable, setting)
		assert.Contains(t, err.Error(), "restart guard", setting)
		s.servers[0].MustDo(t, "CONFIG", "SET", setting, before)
	}
}

// What a run that does not always fsync has granted may be lost, while the note of a durable run
// before it is kept: the next run is guarded.
func TestANoteDoesNotSpeakForARunThatIsNotDurable(t *testing.T) {
	s := durable(t, 1) // with a note of a run before
	server := s.servers[0]
	server.MustDo(t, "CONFIG", "SET", "appendfsync", "everysec")
	g := acquire(t, s.backend(t, redlock.Options{NoRestartGuard: true}), "x", 30*time.Second)
	// as if it was written in the second that a power failure takes
	server.MustDo(t, "DEL", redisnode.LockKey("x"))
	server.Restart(t) // with appendfsync always, as its configuration says
	_, err := s.backend(t, redlock.Options{}).Acquire(t.Context(), request("x", 30*time.Second))
	require.ErrorIs(t, err, driver.ErrUnavailable, "two holders")
	assert.Contains(t, err.Error(), "restart guard")
	assert.Positive(t, time.Until(g.Validity.Until()), "the first lease is over: this test tests nothing")
}

// How the package documentation says to switch persistence on: whoever locks before that is remembered over
// the restart, whose server is trusted at once.
func TestPersistenceSwitchedOnInARunningServer(t *testing.T) {
	s := start(t, 1)
	server := s.servers[0]
	g := acquire(t, s.backend(t, redlock.Options{NoRestartGuard: true}), "x", 30*time.Second)
	server.MustDo(t, "CONFIG", "SET", "appendonly", "yes")
	server.MustDo(t, "CONFIG", "SET", "appendfsync", "always")
	within(t, 30*time.Second, "the log is written", func() bool {
		info := server.Info(t, "persistence")
		return info["aof_rewrite_in_progress"] == "0" && info["aof_rewrite_scheduled"] == "0" &&
			info["aof_last_bgrewrite_status"] == "ok"
	})
	server.MustDo(t, "CONFIG", "REWRITE")
	// which leaves the note
	release(t, acquire(t, s.backend(t, redlock.Options{NoRestartGuard: true}), "y", time.Second))
	server.Restart(t)
	b := s.backend(t, redlock.Options{}) // who has not seen the run before
	refused(t, b, "x", 30*time.Second)
	require.NoError(t, g.Hold.Release(t.Context(), 0))
	release(t, acquire(t, b, "x", 30*time.Second))
}

// A node that writes all to disk before it answers remembers: it votes at once.
func TestDurableServersAreNotGuarded(t *testing.T) {
	s := durable(t, 3)
	a, b := s.backend(t, redlock.Options{}), s.backend(t, redlock.Options{})
	g := acquire(t, a, "x", 30*time.Second)
	for _, r := range s.servers {
		r.Restart(t)
	}
	within(t, 30*time.Second, "reconnected", func() bool {
		_, err := b.Inspect(t.Context(), "x")
		return err == nil
	})
	refused(t, b, "x", 30*time.Second)
	within(t, 30*time.Second, "the holder is still the holder", func() bool {
		_, err := g.Hold.Renew(t.Context())
		return err == nil
	})
	release(t, g)
	release(t, acquire(t, b, "x", 30*time.Second))
}

// lockWhenGuardEnds takes a lock as soon as new or restarted nodes vote.
func lockWhenGuardEnds(t *testing.T, b *redlock.Backend, name string) (g driver.Grant) {
	t.Helper()
	within(t, 3*guardTTL, "they vote", func() bool {
		var err error
		g, err = locktest.Ask(t.Context(), b, request(name, guardTTL))
		return err == nil
	})
	return g
}

// A server counts its uptime in whole seconds of its clock: one that was started
// just before the end of a second soon says that it has been up for one. Who
// believes that ends the guard while a lock that was forgotten is still held.
func TestGuardAllowsForUptimeInWholeSeconds(t *testing.T) {
	t.Parallel()
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
		within(t, 30*time.Second, "it says that it has been up for a second", func() bool {
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
