package otel_test

import (
	"context"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/golockers/locker"
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

func TestSpansAndMetrics(t *testing.T) {
	spans, reader := tracetest.NewInMemoryExporter(), sdkmetric.NewManualReader()
	tracers := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))
	opts := &otel.Options{
		Tracers: tracers,
		Meters:  sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)),
		Name:    func(string) string { return "all" },
	}
	told, err := otel.NewTrace(opts)
	require.NoError(t, err)
	c := locker.New(memory.New(), &locker.Options{Trace: told})
	defer c.Close()
	require.NoError(t, otel.Watch(opts, c))

	ctx, caller := tracers.Tracer("test").Start(t.Context(), "caller")
	lease, err := c.Lock(ctx, "a")
	require.NoError(t, err)
	_, err = c.TryLock(ctx, "a")
	require.ErrorIs(t, err, locker.ErrHeld)
	require.NoError(t, lease.Unlock(ctx))
	caller.End()

	var names []string
	for _, s := range spans.GetSpans() {
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

	_, err = c.Lock(context.Background(), "b")
	require.NoError(t, err)
	go func() { _, _ = c.Lock(context.Background(), "b") }() // until the client is closed
	require.Eventually(t, func() bool { return len(c.Waits()) == 1 }, 10*time.Second, time.Millisecond)
	var out metricdata.ResourceMetrics
	require.NoError(t, reader.Collect(context.Background(), &out))
	counts := map[string]uint64{}
	for _, m := range out.ScopeMetrics[0].Metrics {
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
	spans, reader := tracetest.NewInMemoryExporter(), sdkmetric.NewManualReader()
	opts := &otel.Options{
		Tracers: sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans)),
		Meters:  sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)),
		Name:    func(lock string) string { return lock[:1] },
	}
	told, err := otel.NewTrace(opts)
	require.NoError(t, err)
	c := locker.New(memory.New(), &locker.Options{Trace: told})
	defer c.Close()
	require.NoError(t, otel.Watch(opts, c))
	_, err = c.Lock(t.Context(), "é")
	require.NoError(t, err)
	go func() { _, _ = c.Lock(context.Background(), "é") }() // until the client is closed
	require.Eventually(t, func() bool { return len(c.Waits()) == 1 }, 10*time.Second, time.Millisecond)
	_, err = c.TryLock(t.Context(), "\xff")
	require.ErrorIs(t, err, locker.ErrInvalid)

	for _, s := range spans.GetSpans() {
		assert.True(t, utf8.ValidString(s.Name), "%q", s.Name)
		assert.True(t, utf8.ValidString(s.Status.Description), "%q", s.Status.Description)
		for _, a := range s.Attributes {
			assert.True(t, utf8.ValidString(a.Value.Emit()), "%s %q", a.Key, a.Value.Emit())
		}
	}
	var out metricdata.ResourceMetrics
	require.NoError(t, reader.Collect(context.Background(), &out))
	name := attribute.String("locker.name", "\uFFFD")
	for _, m := range out.ScopeMetrics[0].Metrics {
		switch h := m.Data.(type) {
		case metricdata.Gauge[float64]:
			assert.Contains(t, h.DataPoints[0].Attributes.ToSlice(), name, m.Name)
		case metricdata.Histogram[float64]:
			assert.Contains(t, h.DataPoints[0].Attributes.ToSlice(), name, m.Name)
		}
	}
}
