package otel_test

import (
	"context"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/golockers/locker"
	"github.com/golockers/locker/internal/locktest"
	"github.com/golockers/locker/memory"
	"github.com/golockers/locker/observe/otel"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
)

// watched is a client, and what it tells.
type watched struct {
	*locker.Client
	spans   *tracetest.InMemoryExporter
	reader  *sdkmetric.ManualReader
	tracers *sdktrace.TracerProvider
}

func watch(t *testing.T, name func(lock string) string) (c watched) {
	c.spans, c.reader = tracetest.NewInMemoryExporter(), sdkmetric.NewManualReader()
	c.tracers = sdktrace.NewTracerProvider(sdktrace.WithSyncer(c.spans))
	meters := sdkmetric.NewMeterProvider(sdkmetric.WithReader(c.reader))
	opts := &otel.Options{Tracers: c.tracers, Meters: meters, Name: name}
	told, err := otel.NewTrace(opts)
	require.NoError(t, err)
	c.Client = locker.New(memory.New(), &locker.Options{Trace: told})
	t.Cleanup(func() { _ = c.Close() })
	require.NoError(t, otel.Watch(opts, c.Client))
	return c
}

// metrics are those of a client that holds a lock for which a caller waits.
func (c watched) metrics(t *testing.T, name string) []metricdata.Metrics {
	locktest.Lock(t, c, name)
	go func() { _, _ = c.Lock(context.Background(), name) }() // until the client is closed
	locktest.Eventually(t, 30*time.Second, "a caller waits", func() bool { return len(c.Waits()) == 1 })
	var out metricdata.ResourceMetrics
	require.NoError(t, c.reader.Collect(context.Background(), &out))
	return out.ScopeMetrics[0].Metrics
}

func TestSpansAndMetrics(t *testing.T) {
	c := watch(t, func(string) string { return "all" })
	ctx, caller := c.tracers.Tracer("test").Start(t.Context(), "caller")
	lease, err := c.Lock(ctx, "a")
	require.NoError(t, err)
	_, err = c.TryLock(ctx, "a")
	require.ErrorIs(t, err, locker.ErrHeld)
	require.NoError(t, lease.Unlock(ctx))
	caller.End()

	var names []string
	for _, s := range c.spans.GetSpans() {
		names = append(names, s.Name)
		if s.Name == "caller" {
			continue
		}
		assert.Equal(t, caller.SpanContext().SpanID(), s.Parent.SpanID(), "%s: the parent is the caller's span",
			s.Name)
		assert.Equal(t, caller.SpanContext().TraceID(), s.SpanContext.TraceID(), s.Name)
		assert.Equal(t, s.Name == "trylock a", s.Status.Code == codes.Error, s.Name)
	}
	assert.ElementsMatch(t, []string{"attempt a", "lock a", "trylock a", "unlock a", "caller"}, names)

	counts := map[string]uint64{}
	for _, m := range c.metrics(t, "b") {
		switch h := m.Data.(type) {
		case metricdata.Gauge[int64]:
			counts[m.Name] = uint64(h.DataPoints[0].Value)
		case metricdata.Gauge[float64]:
			name, _ := h.DataPoints[0].Attributes.Value("locker.name")
			counts[m.Name+" "+name.AsString()] = uint64(len(h.DataPoints))
		case metricdata.Histogram[float64]:
			for _, p := range h.DataPoints {
				outcome, _ := p.Attributes.Value("locker.outcome")
				name, _ := p.Attributes.Value("locker.name")
				counts[m.Name+" "+outcome.AsString()+" "+name.AsString()] = p.Count
			}
		}
	}
	assert.Equal(t, map[string]uint64{
		"locker.lock.duration ok all": 2, "locker.lock.duration held all": 1, "locker.hold.duration ok all": 1,
		"locker.held": 1, "locker.waiting": 1, "locker.wait.longest all": 1,
	}, counts)
}

// Name may cut a letter in two, and a caller may ask for a name that is none. One such text
// would cost the exporter its whole batch.
func TestANameThatIsNotUTF8(t *testing.T) {
	c := watch(t, func(lock string) string { return lock[:1] })
	metrics := c.metrics(t, "é")
	_, err := c.TryLock(t.Context(), "\xff")
	require.ErrorIs(t, err, locker.ErrInvalid)

	for _, s := range c.spans.GetSpans() {
		assert.True(t, utf8.ValidString(s.Name), "%q", s.Name)
		assert.True(t, utf8.ValidString(s.Status.Description), "%q", s.Status.Description)
		for _, a := range s.Attributes {
			assert.True(t, utf8.ValidString(a.Value.Emit()), "%s %q", a.Key, a.Value.Emit())
		}
	}
	name := attribute.String("locker.name", "\uFFFD")
	for _, m := range metrics {
		switch h := m.Data.(type) {
		case metricdata.Gauge[float64]:
			assert.Contains(t, h.DataPoints[0].Attributes.ToSlice(), name, m.Name)
		case metricdata.Histogram[float64]:
			assert.Contains(t, h.DataPoints[0].Attributes.ToSlice(), name, m.Name)
		}
	}
}
