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

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/internal/locktest"
	"github.com/golockers/locker/postgres"
)

// A request whose connection is lost while it commits is asked again, and refused by its own first copy. That
// one is granted nevertheless, and there is a Hold to take it back.
func TestARefusalBesideACopyThatCommitsHasAHold(t *testing.T) {
	t.Parallel()
	s := lab.StartPostgres(t)
	p := lab.StartProxy(t, s.Addr())
	b, _ := newBackend(t, s.URL(p.Addr(), "sslmode=disable"), nil)
	acquire(t, b, "another", owner(9)) // the table is there
	gate, err := pgx.Connect(t.Context(), s.URL(s.Addr(), "sslmode=disable"))
	require.NoError(t, err)
	defer func() { _ = gate.Close(context.Background()) }()
	_, err = gate.Exec(t.Context(), "SELECT pg_advisory_lock(1)")
	require.NoError(t, err)
	s.Exec(t, `CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN LOOP
		BEGIN PERFORM pg_advisory_xact_lock_shared(1); RETURN NULL;
		EXCEPTION WHEN query_canceled THEN END; -- the driver asks for that, and a commit does not
	END LOOP; END $$`)
	s.Exec(t, `CREATE CONSTRAINT TRIGGER wait AFTER INSERT ON locker_locks
		DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (NEW.name > '') EXECUTE FUNCTION wait()`)
	links := make(chan *lab.Link, 1) // that of the first copy
	p.OnRequest(owner(1), func(l *lab.Link) { links <- l })
	answered := make(chan error, 1)
	var g driver.Grant
	go func() {
		var err error
		g, err = locktest.Ask(t.Context(), b, request("a", owner(1)))
		answered <- err
	}()
	until(t, s, "1", "SELECT count(*) FROM pg_locks WHERE NOT granted")
	(<-links).Reset()
	require.ErrorIs(t, <-answered, driver.ErrHeld)
	require.NoError(t, gate.Close(t.Context()))
	until(t, s, owner(1), "SELECT max(owner) FROM locker_locks WHERE name = 'a'")
	require.NotNil(t, g.Hold)
	require.ErrorIs(t, g.Hold.Undo(t.Context()), driver.ErrLost, "another copy may still come")
	st, err := b.Inspect(t.Context(), "a")
	require.NoError(t, err)
	assert.False(t, st.Held, "it was removed")
}

// A row that somebody has locked keeps no renewal waiting but its own, which goes on when the lock has gone.
func TestALockedRowDelaysNoOtherRenewal(t *testing.T) {
	t.Parallel()
	s := lab.StartPostgres(t)
	b, pool := newBackend(t, s.URL(s.Addr(), "sslmode=disable", "pool_max_conns=8"),
		&postgres.Options{Timeout: 20 * time.Second})
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
		stuck := make(chan error, 1)
		go func() { _, err := holds[0].Renew(t.Context()); stuck <- err }()
		var others sync.WaitGroup
		for _, h := range holds[1:] {
			others.Go(func() {
				for range 20 {
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
	t.Parallel()
	s := lab.StartPostgres(t, lab.WithConfig("default_transaction_isolation", "serializable"))
	url := s.URL(s.Addr(), "sslmode=disable")
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

// Of a request whose connection was lost, the copy is granted the lock, and the first one may arrive later:
// it is not enough that something was there and is removed.
func TestUndoOfACopyWaitsForTheFirst(t *testing.T) {
	_, p, b := proxied(t)
	acquire(t, b, "another", owner(9)) // the table is there
	for _, req := range []driver.Request{request("a", owner(1)), sharer("shared", 2)} {
		req.TTL = 500 * time.Millisecond
		p.CutReply("nextval")
		g := locktest.Acquire(t, b, req)
		began := time.Now()
		require.ErrorIs(t, g.Hold.Undo(t.Context()), driver.ErrLost, "nothing is there now")
		locktest.Eventually(t, 30*time.Second, "it is settled", func() bool { return g.Hold.Undo(t.Context()) == nil })
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
		locktest.Eventually(t, 30*time.Second, "it is settled", func() bool { return g.Hold.Undo(t.Context()) == nil })
		assert.GreaterOrEqual(t, time.Since(began), req.TTL)
	}
}
