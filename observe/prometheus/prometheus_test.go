package prometheus_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golockers/locker"
	"github.com/golockers/locker/memory"
	"github.com/golockers/locker/observe/prometheus"
	client "github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func group(lock string) string { name, _, _ := strings.Cut(lock, "/"); return name }

// down is a service that is out of reach.
type down struct{ *memory.Backend }

func (down) Acquire(context.Context, locker.Request) (locker.Grant, error) {
	return locker.Grant{}, locker.ErrUnavailable
}

func TestMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		metrics := prometheus.New(&prometheus.Options{Name: group, Buckets: []float64{1, 10}})
		registry := client.NewPedanticRegistry()
		require.NoError(t, registry.Register(metrics))
		opts := &locker.Options{Trace: metrics.Trace()}
		c := locker.New(memory.New(), opts)
		metrics.Watch(c)
		defer c.Close()

		lease, err := c.Lock(t.Context(), "invoice/1")
		require.NoError(t, err)
		_, err = c.TryLock(t.Context(), "invoice/1")
		require.ErrorIs(t, err, locker.ErrHeld)
		for i := range 2 {
			go func() { // gives up in line
				time.Sleep(time.Duration(i) * time.Second)
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				_, _ = c.Lock(ctx, "invoice/1")
			}()
		}
		time.Sleep(3 * time.Second)
		synctest.Wait()
		assert.NoError(t, testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP locker_held Leases held now.
# TYPE locker_held gauge
locker_held 1
# HELP locker_longest_wait_seconds Longest wait that is under way now.
# TYPE locker_longest_wait_seconds gauge
locker_longest_wait_seconds{name="invoice"} 3
# HELP locker_waiting Callers of Lock that wait now.
# TYPE locker_waiting gauge
locker_waiting 2
`), "locker_held", "locker_waiting", "locker_longest_wait_seconds"))
		time.Sleep(3*time.Second + time.Millisecond)
		synctest.Wait()
		require.NoError(t, lease.Unlock(t.Context()))
		sick := locker.New(down{memory.New()}, opts)
		defer sick.Close()
		_, err = sick.TryLock(t.Context(), "invoice/2")
		require.ErrorIs(t, err, locker.ErrUnavailable)

		assert.NoError(t, testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP locker_hold_duration_seconds Length of leases, by how they ended.
# TYPE locker_hold_duration_seconds histogram
locker_hold_duration_seconds_bucket{name="invoice",outcome="ok",le="1"} 0
locker_hold_duration_seconds_bucket{name="invoice",outcome="ok",le="10"} 1
locker_hold_duration_seconds_bucket{name="invoice",outcome="ok",le="+Inf"} 1
locker_hold_duration_seconds_sum{name="invoice",outcome="ok"} 6.001
locker_hold_duration_seconds_count{name="invoice",outcome="ok"} 1
# HELP locker_lock_duration_seconds Length of Lock and TryLock, by how they ended.
# TYPE locker_lock_duration_seconds histogram
locker_lock_duration_seconds_bucket{name="invoice",op="lock",outcome="held",le="1"} 0
locker_lock_duration_seconds_bucket{name="invoice",op="lock",outcome="held",le="10"} 2
locker_lock_duration_seconds_bucket{name="invoice",op="lock",outcome="held",le="+Inf"} 2
locker_lock_duration_seconds_sum{name="invoice",op="lock",outcome="held"} 10
locker_lock_duration_seconds_count{name="invoice",op="lock",outcome="held"} 2
locker_lock_duration_seconds_bucket{name="invoice",op="lock",outcome="ok",le="1"} 1
locker_lock_duration_seconds_bucket{name="invoice",op="lock",outcome="ok",le="10"} 1
locker_lock_duration_seconds_bucket{name="invoice",op="lock",outcome="ok",le="+Inf"} 1
locker_lock_duration_seconds_sum{name="invoice",op="lock",outcome="ok"} 0
locker_lock_duration_seconds_count{name="invoice",op="lock",outcome="ok"} 1
locker_lock_duration_seconds_bucket{name="invoice",op="trylock",outcome="held",le="1"} 1
locker_lock_duration_seconds_bucket{name="invoice",op="trylock",outcome="held",le="10"} 1
locker_lock_duration_seconds_bucket{name="invoice",op="trylock",outcome="held",le="+Inf"} 1
locker_lock_duration_seconds_sum{name="invoice",op="trylock",outcome="held"} 0
locker_lock_duration_seconds_count{name="invoice",op="trylock",outcome="held"} 1
locker_lock_duration_seconds_bucket{name="invoice",op="trylock",outcome="unavailable",le="1"} 1
locker_lock_duration_seconds_bucket{name="invoice",op="trylock",outcome="unavailable",le="10"} 1
locker_lock_duration_seconds_bucket{name="invoice",op="trylock",outcome="unavailable",le="+Inf"} 1
locker_lock_duration_seconds_sum{name="invoice",op="trylock",outcome="unavailable"} 0
locker_lock_duration_seconds_count{name="invoice",op="trylock",outcome="unavailable"} 1
`), "locker_lock_duration_seconds", "locker_hold_duration_seconds"))
	})
}

// Name may cut a letter in two, and a caller may ask for a name that is none.
func TestANameThatIsNotUTF8(t *testing.T) {
	metrics := prometheus.New(&prometheus.Options{Name: func(lock string) string { return lock[:1] }})
	registry := client.NewPedanticRegistry()
	require.NoError(t, registry.Register(metrics))
	c := locker.New(memory.New(), &locker.Options{Trace: metrics.Trace()})
	defer c.Close()
	metrics.Watch(c)
	_, err := c.Lock(t.Context(), "é")
	require.NoError(t, err)
	go func() { _, _ = c.Lock(context.Background(), "é") }() // until the client is closed
	require.Eventually(t, func() bool { return len(c.Waits()) == 1 }, 10*time.Second, time.Millisecond)
	_, err = c.TryLock(t.Context(), "\xff")
	require.ErrorIs(t, err, locker.ErrInvalid)
	families, err := registry.Gather()
	require.NoError(t, err)
	names := map[string]bool{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == "name" {
					names[l.GetValue()] = true
				}
			}
		}
	}
	assert.Equal(t, map[string]bool{"\uFFFD": true}, names)
}
