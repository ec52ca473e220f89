package postgres_test

import (
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/internal/locktest"
	"github.com/golockers/locker/postgres"
)

// A caller that leaves a request to those with whom it shares a round trip does not know when that is sent. The
// server is away all the while: what was asked for is over when the longest that it was asked for has passed since
// the end of the round trip, and not before.
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

// Of a request whose connection was lost, the copy is granted the lock, and the first one may arrive later: it is not
// enough that something was there and is removed.
func TestUndoOfACopyWaitsForTheFirst(t *testing.T) {
	_, p, b := proxied(t)
	acquire(t, b, "another", owner(9)) // the table is there
	for _, req := range []driver.Request{request("a", owner(1)), sharer("shared", 2)} {
		req.TTL = 500 * time.Millisecond
		p.CutReply("nextval")
		g := locktest.Acquire(t, b, req)
		began := time.Now()
		require.ErrorIs(t, g.Hold.Undo(t.Context()), driver.ErrLost, "nothing is there now")
		require.Eventually(t, func() bool { return g.Hold.Undo(t.Context()) == nil }, 30*time.Second, time.Millisecond)
		assert.GreaterOrEqual(t, time.Since(began), req.TTL*9/10)
	}
}

// A request without an answer may still arrive, although nothing of it is there.
func TestUndoOfARequestWithoutAnAnswer(t *testing.T) {
	_, p, b := proxied(t)
	acquire(t, b, "another", owner(9)) // the table is there
	for _, req := range []driver.Request{request("a", owner(1)), sharer("shared", 2)} {
		req.TTL = time.Second
		ctx, cancel := context.WithCancel(t.Context())
		p.OnRequest("nextval", func(l *lab.Link) { l.Requests(lab.Hold); cancel() })
		began := time.Now()
		g, err := locktest.Ask(ctx, b, req)
		cancel()
		require.ErrorIs(t, err, context.Canceled)
		require.NotNil(t, g.Hold)
		require.Eventually(t, func() bool { return g.Hold.Undo(t.Context()) == nil }, 30*time.Second, time.Millisecond)
		assert.GreaterOrEqual(t, time.Since(began), req.TTL)
	}
}

// A renewal that waits in the queue for its row is under way until it has its answer.
func TestUndoBesideARenewalInTurn(t *testing.T) {
	s, p, b := proxied(t)
	_, direct := newBackend(t, s.URL(s.Addr(), "sslmode=disable"), nil)
	for _, req := range []driver.Request{request("a", owner(1)), sharer("shared", 2)} {
		g := locktest.Acquire(t, b, req)
		tx, err := direct.Begin(t.Context())
		require.NoError(t, err)
		_, err = tx.Exec(t.Context(), "SELECT FROM locker_locks WHERE name = $1 FOR UPDATE", []byte(req.Name))
		require.NoError(t, err)
		links := make(chan *lab.Link, 1)
		p.OnRequest("lock_timeout", func(l *lab.Link) {
			l.Requests(lab.Hold)
			links <- l
		})
		renewed := make(chan error, 1)
		go func() { _, err := g.Hold.Renew(t.Context()); renewed <- err }()
		l := <-links
		require.NoError(t, tx.Rollback(t.Context()))
		require.ErrorIs(t, g.Hold.Undo(t.Context()), driver.ErrLost, "it is removed, and the renewal is not there yet")
		l.Requests(lab.Pass)
		require.ErrorIs(t, <-renewed, driver.ErrLost)
		require.NoError(t, g.Hold.Undo(t.Context()))
	}
}
