// Package prometheus exports metrics of a program's locks to Prometheus:
//
//	metrics := prometheus.New(nil)
//	registry.MustRegister(metrics)
//	client, err := locker.New(backend, &locker.Options{Trace: metrics.Trace()})
//	metrics.Watch(client)
//
// These are the metrics. Times are in seconds.
//
//	locker_lock_duration_seconds{op,outcome,name}  histogram: Lock and TryLock, from call to return
//	locker_hold_duration_seconds{outcome,name}     histogram: leases, from grant to release or loss
//	locker_attempts_total{outcome,name}            counter: requests for a lock that were sent to the service
//	locker_renewals_total{outcome,name}            counter
//	locker_take_backs_total{outcome,name}          counter: completed cleanups after unknown outcomes,
//	                                               failed releases and losses
//	locker_held, locker_waiting, locker_pending    gauges of the watched clients: leases, callers that
//	                                               wait, take-backs in progress
//	locker_longest_wait_seconds{name}              gauge: the longest current wait; no series if there
//	                                               is none
//
// op is "lock" or "trylock". outcome is the result of [locker.Event.Outcome]: "ok", "held",
// "unavailable", "canceled", "lost", "closed", "invalid" or "error". name is the result of
// [Options].Name, or "" without it.
//
// docs/observe in the repository has a Grafana dashboard and alert rules for these metrics.
package prometheus

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/golockers/locker"
)

// Options are the settings of [New]. nil, or the zero value, means the defaults.
type Options struct {
	// Name maps a lock's name to the label "name", such as the part before the first slash. It should
	// have few different values: each is a time series in every metric. Invalid UTF-8 is replaced. nil:
	// always "".
	Name func(lock string) string

	// Buckets are the upper bounds of the histograms, in seconds. nil: from 1 ms to 1 h, each about
	// three times the previous one.
	Buckets []float64

	_ struct{}
}

// Metrics counts the events of its [locker.Trace]. It is a [prometheus.Collector], and may be used by
// many clients and goroutines at once.
type Metrics struct {
	name func(string) string

	locks, holds                  *prometheus.HistogramVec
	attempts, renewals, takeBacks *prometheus.CounterVec
	held, waiting, pending, wait  *prometheus.Desc

	mu      sync.Mutex
	watched []*locker.Client
}

var _ prometheus.Collector = (*Metrics)(nil)

// New returns Metrics with all counts at zero.
func New(opts *Options) *Metrics {
	var o Options
	if opts != nil {
		o = *opts
	}
	if o.Name == nil {
		o.Name = func(string) string { return "" }
	}
	if o.Buckets == nil {
		o.Buckets = []float64{.001, .003, .01, .03, .1, .3, 1, 3, 10, 30, 100, 300, 1000, 3600}
	}
	histogram := func(name, help string, labels ...string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: o.Buckets},
			labels)
	}
	counter := func(name, help string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{"outcome", "name"})
	}
	gauge := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	return &Metrics{
		// An invalid UTF-8 label panics.
		name: func(lock string) string { return strings.ToValidUTF8(o.Name(lock), "\uFFFD") },
		locks: histogram("locker_lock_duration_seconds", "Duration of Lock and TryLock, by outcome.",
			"op", "outcome", "name"),
		holds: histogram("locker_hold_duration_seconds", "Duration of leases, by outcome.", "outcome",
			"name"),
		attempts: counter("locker_attempts_total", "Requests for a lock that were sent to the service."),
		renewals: counter("locker_renewals_total", "Attempts to renew a lease."),
		takeBacks: counter("locker_take_backs_total",
			"Completed cleanups after unknown outcomes, failed releases and losses."),
		held:    gauge("locker_held", "Leases held now."),
		waiting: gauge("locker_waiting", "Callers waiting in Lock now."),
		pending: gauge("locker_pending", "Take-backs in progress now."),
		wait:    gauge("locker_longest_wait_seconds", "Longest current wait.", "name"),
	}
}

// Trace returns a Trace for [locker.Options] that counts.
func (m *Metrics) Trace() *locker.Trace {
	count := func(counter *prometheus.CounterVec) func(context.Context, locker.Event) {
		return func(_ context.Context, e locker.Event) {
			counter.WithLabelValues(e.Outcome(), m.name(e.Name)).Inc()
		}
	}
	hold := func(_ context.Context, e locker.Event) {
		m.holds.WithLabelValues(e.Outcome(), m.name(e.Name)).Observe(e.Held.Seconds())
	}
	return &locker.Trace{
		LockDone: func(_ context.Context, e locker.Event) {
			m.locks.WithLabelValues(e.Op, e.Outcome(), m.name(e.Name)).Observe(e.Took.Seconds())
		},
		Attempt:   count(m.attempts),
		Renewed:   count(m.renewals),
		Lost:      hold,
		Released:  hold,
		TakenBack: count(m.takeBacks),
	}
}

// Watch adds c to the clients that the gauges cover. A closed client counts as zero.
func (m *Metrics) Watch(c *locker.Client) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.watched = append(m.watched, c)
}

// Describe is for [prometheus.Registry].
func (m *Metrics) Describe(to chan<- *prometheus.Desc) {
	for _, c := range m.counted() {
		c.Describe(to)
	}
	to <- m.held
	to <- m.waiting
	to <- m.pending
	to <- m.wait
}

// Collect is for [prometheus.Registry].
func (m *Metrics) Collect(to chan<- prometheus.Metric) {
	for _, c := range m.counted() {
		c.Collect(to)
	}
	var held, waiting, pending int
	longest := map[string]time.Duration{}
	m.mu.Lock()
	for _, c := range m.watched {
		st := c.Stats()
		held, waiting, pending = held+st.Held, waiting+st.Waiting, pending+st.Pending
		for _, w := range c.Waits() {
			name := m.name(w.Name)
			longest[name] = max(longest[name], w.Longest)
		}
	}
	m.mu.Unlock()
	gauge := func(desc *prometheus.Desc, n float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, n, labels...)
	}
	gauge(m.held, float64(held))
	gauge(m.waiting, float64(waiting))
	gauge(m.pending, float64(pending))
	for name, d := range longest {
		gauge(m.wait, d.Seconds(), name)
	}
}

func (m *Metrics) counted() []prometheus.Collector {
	return []prometheus.Collector{m.locks, m.holds, m.attempts, m.renewals, m.takeBacks}
}
