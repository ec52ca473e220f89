package postgres_test

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/postgres"
)

// waiters wait for one name.
type waiters struct {
	ready chan struct{} // closed when all of them wait and are told of a release
	got   chan time.Time
	done  sync.WaitGroup
}

// startWaiting has so many goroutines wait for name until ctx ends.
func startWaiting(ctx context.Context, c *locker.Client, name string, goroutines int) *waiters {
	w := &waiters{ready: make(chan struct{}), got: make(chan time.Time, goroutines)}
	refused := c.Stats().Refused
	for range goroutines {
		w.done.Go(func() {
			l, err := c.Lock(ctx, name)
			if err != nil {
				return
			}
			w.got <- time.Now()
			<-ctx.Done()
			_ = l.Unlock(context.WithoutCancel(ctx))
		})
	}
	w.done.Go(func() {
		// They poll until the connection for wake-ups has proved to hear: then there is a last refusal.
		last, since := refused, time.Now()
		for ; ctx.Err() == nil; time.Sleep(time.Millisecond) {
			now := c.Stats()
			if now.Waiting != goroutines || now.Refused < refused+2 || now.Refused != last {
				last, since = now.Refused, time.Now()
			}
			if time.Since(since) > time.Second {
				close(w.ready)
				return
			}
		}
	})
	return w
}

// A thousand goroutines that wait cost one connection, and nothing is sent while nothing changes.
func TestProveWaitersCostOneConnectionAndNoQuery(t *testing.T) {
	lab.NeedProve(t)
	t.Parallel()
	s := lab.StartPostgres(t)
	holder, err := newClient(t, s.URL(s.Addr(), "sslmode=disable"), nil).Lock(t.Context(), "a",
		locker.TTL(time.Hour))
	require.NoError(t, err)
	p := lab.StartProxy(t, s.Addr())
	c := newClient(t, s.URL(p.Addr(), "sslmode=disable", "application_name=waiting",
		"pool_max_conn_idle_time=100ms", "pool_health_check_period=100ms"), nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	w := startWaiting(ctx, c, "a", 1000)
	<-w.ready
	connections := func() string {
		return s.Query(t, "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'waiting'")
	}
	require.Eventually(t, func() bool { return connections() == "1" }, 10*time.Second, 10*time.Millisecond,
		"those of the pool, which are idle, go")
	sent := p.Stats().Requests.Sent
	time.Sleep(2 * time.Second) // what is measured is that nothing happens
	assert.Equal(t, sent, p.Stats().Requests.Sent)
	assert.Equal(t, "1", connections())
	require.NoError(t, holder.Unlock(t.Context()))
	select {
	case <-w.got:
	case <-time.After(4 * time.Second): // the next poll comes later
		t.Error("nobody was told of the release")
	}
	cancel()
	w.done.Wait()
}

// BenchmarkHandOver is the time from the release in one process to the grant in another, where 1,000
// goroutines wait; raw is a NOTIFY to one goroutine there, which then takes the lock. Both are compared to
// one round trip, measured under the same conditions: after a pause.
func BenchmarkHandOver(b *testing.B) {
	s := newBench(b)
	url := s.server.URL(s.server.Addr(), "sslmode=disable")
	for range turns {
		b.Run("raw", func(b *testing.B) {
			s.handOver(b, url, func(ctx context.Context) (func(context.Context) error, error) {
				_, err := s.pool.Exec(ctx, rawTake, []byte("raw"), "parent")
				return func(ctx context.Context) error {
					_, err := s.pool.Exec(ctx,
						`WITH d AS (DELETE FROM raw WHERE name = $1 RETURNING 1)
							SELECT pg_notify('raw', '') FROM d`, []byte("raw"))
					return err
				}, err
			}, "raw")
		})
		b.Run("locker", func(b *testing.B) {
			s.handOver(b, url, func(ctx context.Context) (func(context.Context) error, error) {
				l, err := s.locks.Lock(ctx, "job")
				if err != nil {
					return nil, err
				}
				return l.Unlock, nil
			}, "locker")
			b.ReportMetric(3, "target:round-trips")
		})
	}
}

func (s *bench) handOver(b *testing.B, url string,
	lock func(context.Context) (unlock func(context.Context) error, err error), contender string) {
	const pause = time.Millisecond
	ctx := b.Context()
	child := lab.StartChild(b, "wait", contender, url)
	var handOvers, roundTrips []float64
	for b.Loop() {
		unlock, err := lock(ctx)
		require.NoError(b, err)
		child.Send(b, "wait")
		child.Expect(b, "waiting", 20*time.Second)
		time.Sleep(pause)
		began := time.Now()
		_, err = s.pool.Exec(ctx, "SELECT 1")
		require.NoError(b, err)
		roundTrips = append(roundTrips, float64(time.Since(began)))

		time.Sleep(pause)
		released := time.Now().UnixNano() // the processes share the wall clock, not the monotonic one
		require.NoError(b, unlock(ctx))
		got, err := strconv.ParseInt(child.Expect(b, "got", 20*time.Second), 10, 64)
		require.NoError(b, err)
		handOvers = append(handOvers, float64(got-released))
	}
	b.ReportMetric(median(handOvers), "ns/op")
	b.ReportMetric(median(handOvers)/median(roundTrips), "round-trips")
}

// waitInChild is the other process of BenchmarkHandOver.
func waitInChild(p *lab.Parent) {
	ctx := context.Background()
	must := func(err error) {
		if err != nil {
			panic(err)
		}
	}
	var next func(waiting func()) time.Time
	if p.Args[0] == "locker" {
		c, err := postgres.Openers.Open(ctx, p.Args[1], nil)
		must(err)
		next = func(waiting func()) time.Time {
			ctx, cancel := context.WithCancel(ctx)
			w := startWaiting(ctx, c, "job", 1000)
			<-w.ready
			waiting()
			got := <-w.got
			cancel()
			w.done.Wait()
			return got
		}
	} else {
		pool, err := pgxpool.New(ctx, p.Args[1])
		must(err)
		conn, err := pgx.Connect(ctx, p.Args[1])
		must(err)
		_, err = conn.Exec(ctx, "LISTEN raw")
		must(err)
		next = func(waiting func()) time.Time {
			waiting()
			_, err := conn.WaitForNotification(ctx)
			must(err)
			_, err = pool.Exec(ctx, rawTake, []byte("raw"), "child")
			must(err)
			got := time.Now()
			_, err = pool.Exec(ctx, "DELETE FROM raw")
			must(err)
			return got
		}
	}
	for {
		p.Hear()
		got := next(func() { p.Say("waiting") })
		p.Say("got %d", got.UnixNano())
	}
}

func median(v []float64) float64 {
	slices.Sort(v)
	return v[len(v)/2]
}
