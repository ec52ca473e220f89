package prometheus_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golockers/locker"
	"github.com/golockers/locker/internal/locktest"
	"github.com/golockers/locker/internal/memlock"
	"github.com/golockers/locker/observe/prometheus"
	client "github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Name may cut a letter in two, and a caller may ask for a name that is none: a label that is not UTF-8 panics.
func TestMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cut := func(lock string) string { return lock[:1] }
		metrics := prometheus.New(&prometheus.Options{Name: cut, Buckets: []float64{1, 10}})
		registry := client.NewPedanticRegistry()
		require.NoError(t, registry.Register(metrics))
		locks := memlock.New(false)
		c := locktest.Must(locker.New(locks, &locker.Options{Trace: metrics.Trace()}))
		metrics.Watch(c)
		defer c.Close()

		lease, err := c.Lock(t.Context(), "é")
		require.NoError(t, err)
		_, err = c.TryLock(t.Context(), "é")
		require.ErrorIs(t, err, locker.ErrHeld)
		for i := range 2 {
			go func() { // gives up in line
				time.Sleep(time.Duration(i) * time.Second)
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				_, _ = c.Lock(ctx, "é")
			}()
		}
		time.Sleep(3 * time.Second)
		synctest.Wait()
		now := shown(t, registry)
		assert.Equal(t, []float64{1, 2, 3}, []float64{now["held"], now["waiting"], now["longest_wait_seconds \uFFFD"]})
		time.Sleep(3*time.Second + time.Millisecond)
		synctest.Wait()
		require.NoError(t, lease.Unlock(t.Context()))
		_, err = c.TryLock(t.Context(), "\xff")
		require.ErrorIs(t, err, locker.ErrInvalid)
		locks.Fail(locker.ErrUnavailable)
		_, err = c.TryLock(t.Context(), "é")
		require.ErrorIs(t, err, locker.ErrUnavailable)

		want := map[string]float64{
			"hold_duration_seconds \uFFFD ok": 6.001, "hold_duration_seconds \uFFFD ok count": 1,
			"lock_duration_seconds \uFFFD lock held": 10, "lock_duration_seconds \uFFFD lock held count": 2,
			"lock_duration_seconds \uFFFD lock held 1": 0, "lock_duration_seconds \uFFFD lock held 10": 2,
			"lock_duration_seconds \uFFFD lock ok": 0, "lock_duration_seconds \uFFFD lock ok count": 1,
			"lock_duration_seconds \uFFFD trylock held count":        1,
			"lock_duration_seconds \uFFFD trylock unavailable count": 1,
			"lock_duration_seconds \uFFFD trylock invalid count":     1,
			"attempts_total \uFFFD ok":                               1, "attempts_total \uFFFD unavailable": 1,
			"held": 0, "waiting": 0, "pending": 0,
		}
		for what, value := range shown(t, registry) {
			if is, ok := want[what]; ok {
				assert.InDelta(t, is, value, 1e-9, what)
				delete(want, what)
			}
		}
		assert.Empty(t, want)
	})
}

// shown has what is gathered, by the metric's name and the values of its labels: of a histogram its sum, its count,
// and its buckets.
func shown(t *testing.T, registry *client.Registry) map[string]float64 {
	t.Helper()
	families, err := registry.Gather()
	require.NoError(t, err)
	all := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			key := strings.TrimPrefix(f.GetName(), "locker_")
			for _, l := range m.GetLabel() {
				key += " " + l.GetValue()
			}
			h := m.GetHistogram()
			all[key] = m.GetGauge().GetValue() + m.GetCounter().GetValue() + h.GetSampleSum()
			if h != nil {
				all[key+" count"] = float64(h.GetSampleCount())
			}
			for _, b := range h.GetBucket() {
				all[fmt.Sprint(key, " ", b.GetUpperBound())] = float64(b.GetCumulativeCount())
			}
		}
	}
	return all
}
