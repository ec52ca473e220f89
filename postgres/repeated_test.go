package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/internal/locktest"
	"github.com/golockers/locker/postgres"
)

// A row that somebody has locked keeps no renewal waiting but its own, which goes on when the lock has gone.
func TestALockedRowDelaysNoOtherRenewal(t *testing.T) {
	_, url := start(t)
	b, pool := newBackend(t, url+"&pool_max_conns=8", &postgres.Options{Timeout: time.Minute})
	for _, shared := range []bool{false, true} {
		var holds []driver.Hold
		for i := range 32 {
			req := request(fmt.Sprint(shared, i), owner(i))
			req.Shared = shared
			g := locktest.Acquire(t, b, req)
			holds = append(holds, g.Hold)
		}
		tx := begin(t, pool)
		_, err := tx.Exec(t.Context(), "SELECT FROM locker_locks WHERE name = $1 FOR UPDATE",
			[]byte(fmt.Sprint(shared, 0)))
		require.NoError(t, err)
		stuck := later(func() error { _, err := holds[0].Renew(t.Context()); return err })
		var others sync.WaitGroup
		for i := range 2 * (len(holds) - 1) { // two ask for each at once
			h := holds[1+i/2]
			others.Go(func() {
				for range 10 {
					_, err := h.Renew(t.Context())
					assert.NoError(t, err)
				}
			})
		}
		others.Wait()
		assert.Empty(t, stuck, "it waits all the while")
		require.NoError(t, tx.Rollback(t.Context()))
		require.NoError(t, <-stuck)
	}
}

// Where transactions are serializable unless they say otherwise, locks that meet are no outage, nor are two
// of them held beside each other.
func TestADefaultOfSerializableIsNoOutage(t *testing.T) {
	_, url := start(t, lab.WithConfig("default_transaction_isolation", "serializable"))
	clients := []*locker.Client{newClient(t, url, nil), newClient(t, url, nil), newClient(t, url, nil)}
	var readers, writers [4]atomic.Int32
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			for round := range 200 {
				opts, n := []locker.Option{locker.Shared()}, i%4
				mine, others := &readers[n], &writers[n]
				if (i/4+round)%2 == 0 {
					opts, mine, others = nil, others, mine
				}
				l, err := clients[i%len(clients)].TryLock(t.Context(), fmt.Sprint(n), opts...)
				if err == nil {
					together := mine.Add(1)
					assert.Zero(t, others.Load(), "a writer beside a reader")
					assert.True(t, together == 1 || opts != nil, "two writers")
					mine.Add(-1)
					err = l.Unlock(t.Context())
				}
				if !errors.Is(err, driver.ErrHeld) {
					assert.NoError(t, err)
				}
			}
		})
	}
	all.Wait()
}

// A caller that leaves a request to those with whom it shares a round trip does not know when that is sent.
// The server is away all the while: what was asked for is over when the longest that it was asked for has
// passed since the end of the round trip, and not before.
func TestUndoWaitsForWhatOthersMaySend(t *testing.T) {
	const ttl, timeout, left = time.Second, 5 * time.Second, 200 * time.Millisecond
	for minHold, lasts := range map[time.Duration]time.Duration{0: ttl, time.Hour: time.Hour} {
		for _, shared := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				config, err := pgxpool.ParseConfig("postgres://locker@127.0.0.1/locker?sslmode=disable")
				require.NoError(t, err)
				config.ConnConfig.LookupFunc = func(context.Context, string) ([]string, error) {
					return []string{"127.0.0.1"}, nil
				}
				config.ConnConfig.DialFunc = func(ctx context.Context, _, _ string) (net.Conn, error) {
					<-ctx.Done()
					return nil, ctx.Err()
				}
				pool, err := pgxpool.NewWithConfig(t.Context(), config)
				require.NoError(t, err)
				defer pool.Close()
				b, err := postgres.New(pool, &postgres.Options{Timeout: timeout})
				require.NoError(t, err)
				began := time.Now()
				ask := func(i int, wait time.Duration) driver.Grant {
					ctx, cancel := context.WithTimeout(t.Context(), wait)
					defer cancel()
					req := request(owner(i), owner(i))
					req.TTL, req.MinHold, req.Shared = ttl, minHold, shared
					g, err := locktest.Ask(ctx, b, req)
					assert.Error(t, err)
					return g
				}
				for i := range 3 { // two go alone, and the third one with the next
					go ask(i, time.Minute)
					synctest.Wait()
				}
				g := ask(3, left)
				require.Equal(t, left, time.Since(began))
				require.NotNil(t, g.Hold, "its outcome is not known")
				undone := func() bool {
					ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
					defer cancel()
					return g.Hold.Undo(ctx) == nil
				}
				time.Sleep(timeout + lasts - time.Since(began))
				assert.False(t, undone(), "it may have been sent after %v", timeout)
				time.Sleep(time.Second + lasts/100)
				assert.True(t, undone())
				require.NoError(t, b.Close())
			})
		}
	}
}

// A request without an answer may still arrive, although nothing of it is there. So may the first copy of one whose
// connection was lost, and whose second copy was granted the lock.
func TestUndoWaitsForWhatMayStillArrive(t *testing.T) {
	_, p, b := proxied(t)
	acquire(t, b, "another", owner(9)) // the table is there
	for i, req := range []driver.Request{request("a", owner(0)), sharer("b", 1), request("c", owner(2)), sharer("d", 3)} {
		req.TTL = 500 * time.Millisecond
		ctx, cancel := context.WithCancel(t.Context())
		began := time.Now()
		if copied := i >= 2; copied {
			p.CutReply("nextval")
			defer cancel()
		} else {
			p.OnRequest("nextval", func(l *lab.Link) { l.Requests(lab.Hold); cancel() })
		}
		g, err := locktest.Ask(ctx, b, req)
		require.ErrorIs(t, err, context.Cause(ctx))
		require.NotNil(t, g.Hold)
		err = g.Hold.Undo(t.Context())
		if err != nil || time.Since(began) < req.TTL {
			require.ErrorIs(t, err, driver.ErrLost, "nothing is there now")
		}
		locktest.Eventually(t, 30*time.Second, "it is settled", func() bool { return g.Hold.Undo(t.Context()) == nil })
		assert.GreaterOrEqual(t, time.Since(began), req.TTL)
	}
}
