package postgres_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/internal/waiting"
	"github.com/golockers/locker/postgres"
)

// settles is how long waiters are not refused when the connection for wake-ups has proved to hear.
const settles = time.Second

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
	w := waiting.Start(ctx, c, "a", 1000, settles)
	<-w.Ready
	connections := func() string {
		return s.Query(t, "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'waiting'")
	}
	require.Eventually(t, func() bool { return connections() == "1" }, 30*time.Second, 10*time.Millisecond,
		"those of the pool, which are idle, go")
	sent := p.Stats().Requests.Sent
	time.Sleep(2 * time.Second) // what is measured is that nothing happens
	assert.Equal(t, sent, p.Stats().Requests.Sent)
	assert.Equal(t, "1", connections())
	require.NoError(t, holder.Unlock(t.Context()))
	select {
	case <-w.Got:
	case <-time.After(4 * time.Second): // the next poll comes later
		t.Error("nobody was told of the release")
	}
	cancel()
	w.Done.Wait()
}

// BenchmarkHandOver is the time from the release in one process to the grant in another, where 1,000
// goroutines wait; raw is a NOTIFY to one goroutine there, which then takes the lock.
func BenchmarkHandOver(b *testing.B) {
	s := newBench(b)
	url := s.server.URL(s.server.Addr(), "sslmode=disable")
	ping := func(ctx context.Context) error { _, err := s.pool.Exec(ctx, "SELECT 1"); return err }
	for range turns {
		b.Run("raw", func(b *testing.B) {
			child := lab.StartChild(b, "wait", "raw", url)
			waiting.HandOver(b, child, ping, func(ctx context.Context) (func(context.Context) error, error) {
				_, err := s.pool.Exec(ctx, rawTake, []byte("raw"), "parent")
				return func(ctx context.Context) error {
					_, err := s.pool.Exec(ctx,
						`WITH d AS (DELETE FROM raw WHERE name = $1 RETURNING 1)
							SELECT pg_notify('raw', '') FROM d`, []byte("raw"))
					return err
				}, err
			})
		})
		b.Run("locker", func(b *testing.B) {
			waiting.HandOver(b, lab.StartChild(b, "wait", "locker", url), ping, waiting.OfClient(s.locks))
		})
	}
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
		next = waiting.TakeOver(c, settles)
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
	waiting.Play(p, next)
}
