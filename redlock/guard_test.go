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

// New servers do not vote for as long as the longest TTL, and the error says
// which and for how long: they have answered, and abstain.
func TestNewServersAreGuarded(t *testing.T) {
	began := time.Now()
	s := start(t, 3)
	s.servers[2].Kill()
	b := s.backend(t, redlock.Options{MaxTTL: 30 * time.Second})
	_, err := locktest.Ask(t.Context(), b, request("x", time.Second))
	require.ErrorIs(t, err, driver.ErrUnavailable)
	for _, r := range s.servers {
		assert.Contains(t, err.Error(), r.Addr())
	}
	var q *redlock.QuorumError
	require.ErrorAs(t, err, &q)
	assert.Equal(t, []int{0, 2}, []int{q.Answered, q.Abstained})
	assert.LessOrEqual(t, q.Wait, 30*time.Second)
	assert.Greater(t, q.Wait, 30*time.Second-time.Since(began))
	assert.Contains(t, err.Error(), "2 of 3 nodes answered, it takes 2, but 2 of them may not vote yet: wait ")
	assert.Contains(t, err.Error(), "restart guard of 30s")
	assert.Zero(t, s.holders(t, "x"))
	c, err := locker.Open(t.Context(), s.url(), nil, redlock.Openers)
	require.NoError(t, err, "to open is to connect")
	require.NoError(t, c.Close())

	_, err = locktest.Ask(t.Context(), b, request("x", time.Minute))
	require.ErrorIs(t, err, driver.ErrInvalid, "a TTL above what the guard rests on")
}

// A server that does not fsync each write, always, may have forgotten some after a crash of its
// machine: it is guarded.
func TestServersThatDoNotAlwaysFsyncAreGuarded(t *testing.T) {
	s := durable(t, 1)
	release(t, acquire(t, s.backend(t, redlock.Options{}), "x", time.Minute))
	for setting, value := range map[string]string{"no-appendfsync-on-rewrite": "yes",
		"appendfsync": "everysec", "appendonly": "no"} {
		before := s.servers[0].MustDo(t, "CONFIG", "GET", setting).([]any)[1]
		s.servers[0].MustDo(t, "CONFIG", "SET", setting, value)
		_, err := s.backend(t, redlock.Options{}).Acquire(t.Context(), request("x", time.Minute))
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
	g := acquire(t, s.backend(t, redlock.Options{NoRestartGuard: true}), "x", time.Minute)
	// as if it was written in the second that a power failure takes
	server.MustDo(t, "DEL", redisnode.LockKey("x"))
	server.Restart(t) // with appendfsync always, as its configuration says
	_, err := s.backend(t, redlock.Options{}).Acquire(t.Context(), request("x", time.Minute))
	require.ErrorIs(t, err, driver.ErrUnavailable, "two holders")
	assert.Contains(t, err.Error(), "restart guard")
	assert.Positive(t, time.Until(g.Validity.Until()), "the first lease is over: this test tests nothing")
}

// How the package documentation says to switch persistence on: whoever locks before that is remembered over
// the restart, whose server is trusted at once.
func TestPersistenceSwitchedOnInARunningServer(t *testing.T) {
	s := start(t, 1)
	server := s.servers[0]
	g := acquire(t, s.backend(t, redlock.Options{NoRestartGuard: true}), "x", time.Minute)
	server.MustDo(t, "CONFIG", "SET", "appendonly", "yes")
	server.MustDo(t, "CONFIG", "SET", "appendfsync", "always")
	within(t, 30*time.Second, "the log is written", func() bool {
		info := server.Info(t, "persistence")
		return info["aof_rewrite_in_progress"] == "0" && info["aof_rewrite_scheduled"] == "0" &&
			info["aof_last_bgrewrite_status"] == "ok"
	})
	server.MustDo(t, "CONFIG", "REWRITE")
	// which leaves the note
	release(t, acquire(t, s.backend(t, redlock.Options{NoRestartGuard: true}), "y", time.Minute))
	server.Restart(t)
	b := s.backend(t, redlock.Options{}) // who has not seen the run before
	refused(t, b, "x", time.Minute)
	require.NoError(t, g.Hold.Release(t.Context(), 0))
	release(t, acquire(t, b, "x", time.Minute))
}

// A node that writes all to disk before it answers remembers: it votes at once.
func TestDurableServersAreNotGuarded(t *testing.T) {
	s := durable(t, 3)
	a, b := s.backend(t, redlock.Options{}), s.backend(t, redlock.Options{})
	g := acquire(t, a, "x", time.Minute)
	each(s.servers, func(r *lab.Redis) { r.Restart(t) })
	within(t, 30*time.Second, "reconnected", func() bool {
		_, err := b.Inspect(t.Context(), "x")
		return err == nil
	})
	refused(t, b, "x", time.Minute)
	within(t, 30*time.Second, "the holder is still the holder", func() bool {
		_, err := g.Hold.Renew(t.Context())
		return err == nil
	})
	release(t, g)
	release(t, acquire(t, b, "x", time.Minute))
}
