package prometheus_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golockers/locker"
	"github.com/golockers/locker/memory"
	"github.com/golockers/locker/observe/prometheus"
	client "github.com/prometheus/client_golang/prometheus"
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
		now := shown(t, registry)
		assert.Equal(t, []float64{1, 2, 3}, []float64{now["held"], now["waiting"], now["longest_wait_seconds invoice"]})
		time.Sleep(3*time.Second + time.Millisecond)
		synctest.Wait()
		require.NoError(t, lease.Unlock(t.Context()))
		sick := locker.New(down{memory.New()}, opts)
		defer sick.Close()
		_, err = sick.TryLock(t.Context(), "invoice/2")
		require.ErrorIs(t, err, locker.ErrUnavailable)

		want := map[string]float64{
			"hold_duration_seconds invoice ok": 6.001, "hold_duration_seconds invoice ok count": 1,
			"lock_duration_seconds invoice lock held": 10, "lock_duration_seconds invoice lock held count": 2,
			"lock_duration_seconds invoice lock held 1": 0, "lock_duration_seconds invoice lock held 10": 2,
			"lock_duration_seconds invoice lock ok": 0, "lock_duration_seconds invoice lock ok count": 1,
			"lock_duration_seconds invoice trylock held count":        1,
			"lock_duration_seconds invoice trylock unavailable count": 1,
			"attempts_total invoice ok":                               1, "attempts_total invoice unavailable": 1,
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
	require.Eventually(t, func() bool { return len(c.Waits()) == 1 }, 30*time.Second, time.Millisecond)
	_, err = c.TryLock(t.Context(), "\xff")
	require.ErrorIs(t, err, locker.ErrInvalid)
	for what := range shown(t, registry) {
		if words := strings.Fields(what); len(words) > 1 { // the first label is the name
			assert.Equal(t, "\uFFFD", words[1], what)
		}
	}
}
