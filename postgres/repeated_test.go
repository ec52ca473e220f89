package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
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
		DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION wait()`)
	links := make(chan *lab.Link, 1) // that of the first copy
	p.OnRequest(owner(1), func(l *lab.Link) { links <- l })
	answered := make(chan error, 1)
	var g driver.Grant
	go func() {
		var err error
		g, err = locktest.Ask(t.Context(), b, request("a", owner(1)))
		answered <- err
	}()
	require.Eventually(t, func() bool {
		return s.Query(t, "SELECT count(*) FROM pg_locks WHERE NOT granted") == "1"
	}, 30*time.Second, time.Millisecond)
	(<-links).Reset()
	require.ErrorIs(t, <-answered, driver.ErrHeld)
	require.NoError(t, gate.Close(t.Context()))
	require.Eventually(t, func() bool {
		st, err := b.Inspect(t.Context(), "a")
		return err == nil && st.Held
	}, 30*time.Second, time.Millisecond)
	require.NotNil(t, g.Hold)
	require.ErrorIs(t, g.Hold.Undo(t.Context()), driver.ErrLost, "another copy may still come")
	st, err := b.Inspect(t.Context(), "a")
	require.NoError(t, err)
	assert.False(t, st.Held, "it was removed")
}

// A Break that is sent twice, since its reply was lost, does not break the next holder.
func TestACopyOfABreakFindsNobody(t *testing.T) {
	s, p, b := proxied(t)
	direct, _ := newBackend(t, s.URL(s.Addr(), "sslmode=disable"), nil)
	for name, ask := range map[string]func(name string, i int) driver.Request{
		"a":      func(name string, i int) driver.Request { return request(name, owner(i)) },
		"shared": sharer,
	} {
		locktest.Acquire(t, direct, ask(name, 1))
		const statement = "RETURNING o.*"
		var next driver.Grant
		var err error
		p.OnRequest(statement, func(l *lab.Link) {
			l.CutOnReply()
			p.OnRequest(statement, func(*lab.Link) {
				next, err = locktest.Ask(context.Background(), direct, ask(name, 2))
			})
		})
		st, broken := locktest.Break(t.Context(), b, name)
		require.NoError(t, broken)
		assert.True(t, st.Held)
		require.NoError(t, err)
		require.NotNil(t, next.Hold, "it was sent twice")
		_, err = next.Hold.Renew(t.Context())
		require.NoError(t, err, name)
	}
}

// A copy of a request that comes late does not shorten what a later one has been promised.
func TestALateCopyShortensNothing(t *testing.T) {
	s, b, _ := server(t)
	for _, req := range []driver.Request{request("a", owner(1)), sharer("shared", 2)} {
		g := locktest.Acquire(t, b, req)
		s.Exec(t, "UPDATE locker_locks SET expires = clock_timestamp() + interval '1 hour'")
		again := locktest.Acquire(t, b, req)
		assert.Equal(t, g.Token, again.Token)
		_, err := g.Hold.Renew(t.Context())
		require.NoError(t, err)
		st, err := b.Inspect(t.Context(), req.Name)
		require.NoError(t, err)
		assert.Greater(t, st.Remaining, 50*time.Minute, req.Name)
	}
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
		tx, err := pool.Begin(t.Context())
		require.NoError(t, err)
		defer func() { _ = tx.Rollback(context.Background()) }()
		_, err = tx.Exec(t.Context(), "SELECT FROM locker_locks WHERE name = $1 FOR UPDATE",
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

// Where transactions are serializable unless they say otherwise, locks that meet are no outage, nor are two of
// them held beside each other.
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

// The row of a name that many share goes from one transaction to the next, and is never found free.
func TestABusyRowKeepsNoHolderFromRenewing(t *testing.T) {
	t.Parallel()
	s := lab.StartPostgres(t)
	url := s.URL(s.Addr(), "sslmode=disable")
	b, _ := newBackend(t, url, &postgres.Options{Timeout: 30 * time.Second})
	for _, req := range []driver.Request{request("alone", owner(1)), sharer("shared", 2)} {
		g := locktest.Acquire(t, b, req)
		ctx, cancel := context.WithCancel(t.Context())
		var others sync.WaitGroup
		locked := make(chan struct{}, 2)
		for range 2 {
			conn, err := pgx.Connect(t.Context(), url)
			require.NoError(t, err)
			others.Go(func() {
				defer func() { _ = conn.Close(context.Background()) }()
				for ctx.Err() == nil {
					tx, err := conn.Begin(t.Context())
					if assert.NoError(t, err) {
						_, err = tx.Exec(t.Context(), "SELECT FROM locker_locks WHERE name = $1 FOR NO KEY UPDATE", []byte(req.Name))
					}
					select {
					case locked <- struct{}{}:
					default:
					}
					for waiting := 0; err == nil && waiting == 0 && ctx.Err() == nil; { // one is next, always
						err = tx.QueryRow(t.Context(), "SELECT count(*) FROM pg_locks WHERE NOT granted").Scan(&waiting)
					}
					if !assert.NoError(t, err) || !assert.NoError(t, tx.Commit(t.Context())) {
						return
					}
				}
			})
		}
		<-locked
		_, err := g.Hold.Renew(t.Context())
		require.NoError(t, err)
		cancel()
		others.Wait()
	}
}
