// Package otel reports a program's locks to OpenTelemetry, as spans and metrics:
//
//	trace, err := otel.NewTrace(nil)
//	client, err := locker.New(backend, &locker.Options{Trace: trace})
//	err = otel.Watch(nil, client)
//
// Every Lock and TryLock is a span "lock NAME" or "trylock NAME" of kind client, whose parent is the
// caller's span. Each request that it sends to the service is a span "attempt NAME" with the same
// parent. A failed renewal and the loss of a lease are spans, too. A span with an error has the status
// Error, with the error as its description.
//
// The metrics use the units of OpenTelemetry.
//
//	locker.lock.duration  histogram, s: every Lock and TryLock, from its call to its return
//	locker.hold.duration  histogram, s: every lease, from its grant to its release or loss
//	locker.renewals       counter: attempts to renew
//	locker.take_backs     counter: completed cleanups after unknown outcomes, failed releases and losses
//	locker.held           gauge of the clients of [Watch]: leases
//	locker.waiting        gauge of these: waiting callers of Lock
//	locker.wait.longest   gauge of these, s: the longest current wait
//
// The attributes are locker.operation ("lock", "trylock"), locker.outcome (see
// [locker.Event.Outcome]), error.type (the outcome, if it is not "ok"), and
// locker.name: in spans the name of the lock, in metrics the result of
// [Options].Name.
package otel

import (
	"context"
	"strings"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/golockers/locker"
	"github.com/golockers/locker/internal/oneline"
)

const scope = "github.com/golockers/locker/observe/otel"

// Options are the settings of [NewTrace] and [Watch]. nil, or the zero value, means the defaults.
type Options struct {
	Tracers trace.TracerProvider // nil: the global one
	Meters  metric.MeterProvider // nil: the global one

	// Name maps a lock's name to the metrics' attribute locker.name, such as the part before the first
	// slash. It should have few different values. Invalid UTF-8 is replaced. nil: metrics have no such
	// attribute.
	Name func(lock string) string

	_ struct{}
}

func withDefaults(opts *Options) (o Options) {
	if opts != nil {
		o = *opts
	}
	if o.Tracers == nil {
		o.Tracers = otel.GetTracerProvider()
	}
	if o.Meters == nil {
		o.Meters = otel.GetMeterProvider()
	}
	return o
}

// NewTrace returns a Trace for [locker.Options] that reports to OpenTelemetry. It
// returns an error if the MeterProvider refuses one of the metrics.
func NewTrace(opts *Options) (*locker.Trace, error) {
	o := withDefaults(opts)
	t := &teller{name: o.Name, tracer: o.Tracers.Tracer(scope)}
	if err := t.instruments(o.Meters.Meter(scope)); err != nil {
		return nil, err
	}
	return &locker.Trace{
		LockDone: func(ctx context.Context, e locker.Event) {
			t.span(ctx, e.Op, e.Took, e)
			t.locks.Record(ctx, e.Took.Seconds(), t.labels(e, attribute.String("locker.operation", e.Op)))
		},
		Attempt: func(ctx context.Context, e locker.Event) { t.span(ctx, "attempt", e.Took, e) },
		Renewed: func(ctx context.Context, e locker.Event) {
			if e.Err != nil {
				t.span(ctx, "renew", e.Took, e)
			}
			t.renewals.Add(ctx, 1, t.labels(e))
		},
		Lost: func(ctx context.Context, e locker.Event) {
			t.span(ctx, "lost", 0, e)
			t.holds.Record(ctx, e.Held.Seconds(), t.labels(e))
		},
		Released: func(ctx context.Context, e locker.Event) {
			t.span(ctx, "unlock", e.Took, e)
			t.holds.Record(ctx, e.Held.Seconds(), t.labels(e))
		},
		TakenBack: func(ctx context.Context, e locker.Event) { t.takeBacks.Add(ctx, 1, t.labels(e)) },
	}, nil
}

// Watch makes the gauges cover these clients; pass all clients of the program in one call. A closed
// client counts as zero. opts are those of [NewTrace].
func Watch(opts *Options, clients ...*locker.Client) error {
	o := withDefaults(opts)
	m := o.Meters.Meter(scope)
	var errs [4]error
	var held, waiting metric.Int64ObservableGauge
	var longest metric.Float64ObservableGauge
	held, errs[0] = m.Int64ObservableGauge("locker.held", metric.WithUnit("{lease}"),
		metric.WithDescription("Leases held now."))
	waiting, errs[1] = m.Int64ObservableGauge("locker.waiting", metric.WithUnit("{caller}"),
		metric.WithDescription("Callers waiting in Lock now."))
	longest, errs[2] = m.Float64ObservableGauge("locker.wait.longest", metric.WithUnit("s"),
		metric.WithDescription("Longest current wait."))
	_, errs[3] = m.RegisterCallback(func(_ context.Context, to metric.Observer) error {
		var holders, callers int
		waits := map[attribute.Set]time.Duration{}
		for _, c := range clients {
			st := c.Stats()
			holders, callers = holders+st.Held, callers+st.Waiting
			for _, w := range c.Waits() {
				labels := *attribute.EmptySet()
				if o.Name != nil {
					labels = attribute.NewSet(attribute.String("locker.name", valid(o.Name(w.Name))))
				}
				waits[labels] = max(waits[labels], w.Longest)
			}
		}
		to.ObserveInt64(held, int64(holders))
		to.ObserveInt64(waiting, int64(callers))
		for labels, d := range waits {
			to.ObserveFloat64(longest, d.Seconds(), metric.WithAttributeSet(labels))
		}
		return nil
	}, held, waiting, longest)
	return oneline.Join(errs[:]...)
}

// teller is the state that the functions of a Trace share.
type teller struct {
	name                func(string) string
	tracer              trace.Tracer
	locks, holds        metric.Float64Histogram
	renewals, takeBacks metric.Int64Counter
}

func (t *teller) instruments(m metric.Meter) error {
	var errs [4]error
	// The SDK's default bounds are for milliseconds.
	bounds := metric.WithExplicitBucketBoundaries(.001, .003, .01, .03, .1, .3, 1, 3, 10, 30, 100, 300, 1000,
		3600)
	t.locks, errs[0] = m.Float64Histogram("locker.lock.duration", metric.WithUnit("s"), bounds,
		metric.WithDescription("Duration of Lock and TryLock, by outcome."))
	t.holds, errs[1] = m.Float64Histogram("locker.hold.duration", metric.WithUnit("s"), bounds,
		metric.WithDescription("Duration of leases, by outcome."))
	t.renewals, errs[2] = m.Int64Counter("locker.renewals", metric.WithUnit("{renewal}"),
		metric.WithDescription("Attempts to renew a lease."))
	t.takeBacks, errs[3] = m.Int64Counter("locker.take_backs", metric.WithUnit("{take-back}"),
		metric.WithDescription("Completed cleanups after unknown outcomes, failed releases and losses."))
	return oneline.Join(errs[:]...)
}

// span reports an event that has just ended, and its duration.
func (t *teller) span(ctx context.Context, what string, took time.Duration, e locker.Event) {
	now, name := time.Now(), valid(e.Name)
	_, span := t.tracer.Start(ctx, what+" "+name, trace.WithTimestamp(now.Add(-took)),
		trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(outcome(e)...),
		trace.WithAttributes(attribute.String("locker.name", name)))
	if e.Token != 0 {
		token := int64(e.Token) //nolint:gosec // attributes have no unsigned integers
		span.SetAttributes(attribute.Int64("locker.token", token))
	}
	if e.Err != nil {
		span.SetStatus(codes.Error, valid(e.Err.Error()))
	}
	span.End(trace.WithTimestamp(now))
}

func (t *teller) labels(e locker.Event, more ...attribute.KeyValue) metric.MeasurementOption {
	more = append(more, outcome(e)...)
	if t.name != nil {
		more = append(more, attribute.String("locker.name", valid(t.name(e.Name))))
	}
	return metric.WithAttributes(more...)
}

func outcome(e locker.Event) []attribute.KeyValue {
	o := e.Outcome()
	all := []attribute.KeyValue{attribute.String("locker.outcome", o)}
	if e.Err != nil {
		all = append(all, attribute.String("error.type", o))
	}
	return all
}

// valid returns s as valid UTF-8. Otherwise exporters would refuse the whole batch.
func valid(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }
