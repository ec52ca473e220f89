//go:build unix

package main_test

import (
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/internal/lab"
)

func TestSignalEndsTheWaitForAService(t *testing.T) {
	s := startService(t)
	holder := holding(t, []with{s.direct()})
	waiter := start(t, []with{s.through()}, "run", "a", "--", "true")
	require.Eventually(t, func() bool { return s.proxy.Stats().Requests.Sent > 0 }, patience,
		time.Millisecond)
	waiter.signal(syscall.SIGINT)
	assert.Equal(t, 128+2, waiter.shellStatus())
	assert.Empty(t, waiter.complaints())
	holder.end()
	assert.False(t, s.kept(t))
}

func TestOutageDuringTheWaitIsNotHeld(t *testing.T) {
	t.Parallel()
	s := startService(t)
	// A waiter asks again when the holder's TTL could be over, and finds the outage.
	holding(t, []with{s.direct()}, "--ttl", "1s")
	waiter := start(t, []with{s.through()}, "run", "--wait", "3s", "a", "--", "echo", "ran")
	require.Eventually(t, func() bool { return s.MustDo(t, "EXISTS", lockKey+":wait") == int64(1) },
		patience, time.Millisecond)
	s.proxy.Set(lab.Reset)
	assert.Equal(t, 69, waiter.wait(), waiter.said())
	assert.Empty(t, waiter.stdout())
}

// A job that starts while its service restarts has to run.
func TestOutageAtTheStartIsWaitedOut(t *testing.T) {
	t.Parallel()
	for what, flags := range map[string][]string{"for --wait": {"--wait", "20s", "--ttl", "4s"},
		"for a TTL": {"--ttl", "20s"}} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s := startService(t)
			s.proxy.Set(lab.Reset)
			p := start(t, []with{s.through()}, slices.Concat([]string{"run"}, flags, []string{"a", "--",
				"echo", "ran"})...)
			p.expectSaid(`waiting for "a"`)
			s.proxy.Set(lab.Pass)
			p.expect("ran")
			assert.Equal(t, 0, p.wait())
		})
	}
}

func TestWhatCannotGetBetterIsToldAtOnce(t *testing.T) {
	s := startService(t)
	began := time.Now()
	r := do(t, []with{withEnv("LOCKER_BACKEND=redis://user:hush@" + s.Addr())}, "run", "--wait", "20s",
		"a", "--", "echo", "ran")
	assert.Equal(t, 69, r.status)
	assert.Contains(t, r.stderr, "WRONGPASS")
	assert.NotContains(t, r.stderr, "hush")
	assert.Less(t, time.Since(began), 10*time.Second)
	assert.Equal(t, 64, do(t, []with{s.direct()}, "run", "--ttl", "1ms", "a", "--", "true").status)
}

func TestOutageDuringALongWaitIsSatOut(t *testing.T) {
	t.Parallel()
	s := startService(t)
	holder := holding(t, []with{s.direct()}, shortTTL...)
	impatient := withEnv("LOCKER_BACKEND=redis://" + s.proxy.Addr() + "?patience=500ms")
	waiter := start(t, []with{impatient}, "run", "--wait", "20s", "a", "--", "echo", "ran")
	waiter.expectSaid(`waiting for "a": held by `)
	s.proxy.Set(lab.Reset)
	waiter.expectSaid("trying until")
	time.Sleep(1500 * time.Millisecond) // far more than the patience of the URL
	require.True(t, waiter.running(), "it has waited for less than --wait: %s", waiter.said())
	holder.signal(syscall.SIGTERM)
	s.proxy.Set(lab.Pass)
	waiter.expect("ran")
	assert.Equal(t, 0, waiter.wait())
}

// Without locker, the service would keep the lock for a TTL after the last renewal.
func TestMinHoldThatIsShorterThanTheTTLEndsInTime(t *testing.T) {
	t.Parallel()
	s := startService(t)
	began := time.Now()
	r := do(t, []with{s.direct()}, "run", "--min-hold", "1500ms", "a", "--", "true")
	assert.Equal(t, result{}, r)
	assert.GreaterOrEqual(t, time.Since(began), 1500*time.Millisecond)
	assert.False(t, s.kept(t), "it has a TTL of 30 s")
}
