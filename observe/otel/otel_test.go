package otel_test

import (
	"context"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/golockers/locker"
	"github.com/golockers/locker/internal/locktest"
	"github.com/golockers/locker/memory"
	"github.com/golockers/locker/observe/otel"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/codes"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
)

// Name may cut a letter in two, and a caller may ask for a name that is none: one such text would cost the exporter its
// whole batch.
func TestSpansAndMetrics(t *testing.T) {
	spans, reader := tracetest.NewInMemoryExporter(), sdkmetric.NewManualReader()
	tracers := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))
	meters := sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))
	opts := &otel.Options{Tracers: tracers, Meters: meters, Name: func(lock string) string { return lock[:1] }}
	told, err := otel.NewTrace(opts)
	require.NoError(t, err)
	c := locktest.Must(locker.New(memory.New(), &locker.Options{Trace: told}))
	t.Cleanup(func() { _ = c.Close() })
	require.NoError(t, otel.Watch(opts, c))

	ctx, caller := tracers.Tracer("test").Start(t.Context(), "caller")
	lease, err := c.Lock(ctx, "é")
	require.NoError(t, err)
	_, err = c.TryLock(ctx, "é")
	require.ErrorIs(t, err, locker.ErrHeld)
	require.NoError(t, lease.Unlock(ctx))
	_, err = c.TryLock(ctx, "\xff")
	require.ErrorIs(t, err, locker.ErrInvalid)
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
		assert.Equal(t, strings.HasPrefix(s.Name, "trylock "), s.Status.Code == codes.Error, s.Name)
		assert.True(t, utf8.ValidString(s.Status.Description), "%q", s.Status.Description)
		for _, a := range s.Attributes {
			assert.True(t, utf8.ValidString(a.Value.Emit()), "%s %q", a.Key, a.Value.Emit())
		}
	}
	assert.ElementsMatch(t, []string{"attempt é", "lock é", "trylock é", "unlock é", "trylock \uFFFD", "caller"}, names)

	locktest.Lock(t, c, "é")
	go func() { _, _ = c.Lock(context.Background(), "é") }() // until the client is closed
	locktest.Eventually(t, 30*time.Second, "a caller waits", func() bool { return len(c.Waits()) == 1 })
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
		"locker.lock.duration ok \uFFFD": 2, "locker.lock.duration held \uFFFD": 1,
		"locker.lock.duration invalid \uFFFD": 1, "locker.hold.duration ok \uFFFD": 1,
		"locker.held": 1, "locker.waiting": 1, "locker.wait.longest \uFFFD": 1,
	}, counts)
}
