package otel_test

import (
	"context"
	"testing"

	"github.com/golockers/locker"
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

func TestSpansAndMetrics(t *testing.T) {
	spans, reader := tracetest.NewInMemoryExporter(), sdkmetric.NewManualReader()
	tracers := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))
	told, err := otel.NewTrace(&otel.Options{
		Tracers: tracers,
		Meters:  sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)),
		Name:    func(string) string { return "all" },
	})
	require.NoError(t, err)
	c := locker.New(memory.New(), &locker.Options{Trace: told})
	defer c.Close()

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
		assert.Equal(t, caller.SpanContext().SpanID(), s.Parent.SpanID(), "%s: the parent is the caller's span", s.Name)
		assert.Equal(t, caller.SpanContext().TraceID(), s.SpanContext.TraceID(), s.Name)
		assert.Equal(t, s.Name == "trylock a", s.Status.Code == codes.Error, s.Name)
	}
	assert.ElementsMatch(t, []string{"attempt a", "lock a", "trylock a", "unlock a", "caller"}, names)

	var out metricdata.ResourceMetrics
	require.NoError(t, reader.Collect(context.Background(), &out))
	counts := map[string]uint64{}
	for _, m := range out.ScopeMetrics[0].Metrics {
		if h, ok := m.Data.(metricdata.Histogram[float64]); ok {
			for _, p := range h.DataPoints {
				outcome, _ := p.Attributes.Value("locker.outcome")
				name, _ := p.Attributes.Value("locker.name")
				counts[m.Name+" "+outcome.AsString()+" "+name.AsString()] = p.Count
			}
		}
	}
	assert.Equal(t, map[string]uint64{
		"locker.lock.duration ok all": 1, "locker.lock.duration held all": 1, "locker.hold.duration ok all": 1,
	}, counts)
}
