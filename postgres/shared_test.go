package postgres_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
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

func sharer(name string, i int) driver.Request {
	req := request(name, owner(i))
	req.Shared = true
	return req
}

// asking are the arguments with which statements take the latch of a name for those owners, and give it.
func asking(name string, owners ...string) []any {
	n := len(owners)
	return []any{slices.Repeat([][]byte{[]byte(name)}, n), owners, slices.Repeat([]int64{postgres.Key(name)}, n),
		make([]bool, n), slices.Repeat([][]byte{{}}, n), slices.Repeat([]int64{1e10}, n), make([]int64, n)}
}

// Break of sharers waits for a transaction that called Held, as long as it may, and says which one is in its
// way: it would let in a sharer that was broken before.
func TestBreakSaysWhichTransactionIsInItsWay(t *testing.T) {
	s, b, pool := server(t)
	c := locktest.Client(t, b, nil)
	l := locktest.Lock(t, c, "a", locker.Shared())
	tx := begin(t, pool)
	require.NoError(t, postgres.Held(t.Context(), tx, l))
	for what, ends := range map[string]func(time.Duration) error{
		"ctx": func(d time.Duration) error { _, err := locktest.Break(locktest.Within(t, d), b, "a"); return err },
		"Timeout": func(d time.Duration) error {
			hasty, _ := newBackend(t, s.URL(s.Addr(), "sslmode=disable"), &postgres.Options{Timeout: d})
			_, err := locktest.Break(context.Background(), hasty, "a")
			return err
		},
	} {
		err := ends(time.Second)
		for d := 2 * time.Second; d < 20*time.Second && err != nil && !strings.Contains(err.Error(), "Held"); d *= 2 {
			err = ends(d) // the machine is slow: the time did not suffice to ask what is in the way
		}
		require.ErrorContains(t, err, "a transaction that called Held", what)
		require.ErrorContains(t, err, "of locker (), idle in transaction, for 00:0", "which one is said")
		require.ErrorIs(t, err, driver.ErrUnavailable)
	}
	require.NoError(t, l.Renew(t.Context()), "nothing has changed")
	require.NoError(t, tx.Commit(t.Context()))
	_, err := locktest.Break(t.Context(), b, "a")
	require.NoError(t, err)
}

// A sharer that has to wait until others are let in is not refused, since nobody holds the name against it: it
// waits for the Timeout, which is longer here than a writer would.
func TestASharerIsNotRefusedWhileOthersComeIn(t *testing.T) {
	const timeout = 1300 * time.Millisecond
	s, patient, pool := server(t)
	b, _ := newBackend(t, s.URL(s.Addr(), "sslmode=disable"), &postgres.Options{Timeout: timeout})
	locktest.Acquire(t, patient, sharer("a", 0))
	tx := begin(t, pool)
	_, err := tx.Exec(t.Context(), "SELECT pg_advisory_xact_lock($1)", postgres.Key("a"))
	require.NoError(t, err)
	began := time.Now()
	_, err = locktest.Ask(t.Context(), b, sharer("a", 1))
	require.ErrorIs(t, err, driver.ErrUnavailable)
	require.NotErrorIs(t, err, driver.ErrHeld)
	require.GreaterOrEqual(t, time.Since(began), timeout)
	require.NoError(t, tx.Commit(t.Context()))
	locktest.Acquire(t, patient, sharer("a", 2))
}

// Sharers who have left cost those who come after them nothing, also while others stay.
func TestSharersReadNoneThatHaveLeft(t *testing.T) {
	const pairs = 400
	s, b, pool := server(t)
	locktest.Acquire(t, b, sharer("a", 0))
	for i := range pairs {
		g := locktest.Acquire(t, b, sharer("a", i+1))
		require.NoError(t, g.Hold.Release(t.Context(), 0))
	}
	pool.Reset() // a connection that ends tells what it has read
	read := 0
	require.Eventually(t, func() bool {
		_, err := fmt.Sscan(s.Query(t, `SELECT idx_tup_read FROM pg_stat_user_indexes
			WHERE indexrelname = 'locker_locks_pkey'`), &read)
		return err == nil && read >= pairs
	}, 30*time.Second, 10*time.Millisecond)
	assert.Less(t, read/pairs, 40, "entries of the index that a pair has read")
	t.Logf("a pair has read %d entries of the index", read/pairs)
}

// Of sharers whose releases share a round trip, some leave and some are kept, and the one that is kept for longest
// keeps the lock, unless one stays.
func TestSharersThatAreKeptTogether(t *testing.T) {
	s, b, _ := server(t)
	for round := range 8 {
		name := fmt.Sprint(round)
		var holds [13]driver.Hold
		for i := range holds {
			req := sharer(name, i)
			req.TTL = time.Hour
			holds[i] = locktest.Acquire(t, b, req).Hold
		}
		var all sync.WaitGroup
		for i, h := range holds[1:] {
			all.Go(func() { assert.NoError(t, h.Release(t.Context(), time.Duration(i%3)*time.Minute)) })
		}
		all.Wait()
		look := func() driver.State {
			st, err := b.Inspect(t.Context(), name)
			require.NoError(t, err)
			return st
		}
		assert.Equal(t, 1+8, look().Sharers, "four have left")
		assert.Equal(t, "4", s.Query(t, "SELECT count(*) FROM locker_locks WHERE name = $1 AND owner LIKE 'kept %' "+
			"AND expires > clock_timestamp() + interval '90 s'", []byte(name)), "each for as long as it says")
		assert.Greater(t, look().Remaining, time.Hour/2, "one stays")
		require.NoError(t, holds[0].Release(t.Context(), 0))
		assert.InDelta(t, 2*time.Minute, look().Remaining, float64(time.Minute/2))
	}
}

// The number of sharers is bounded. At the bound they come, are renewed and leave in time, and leave nothing.
func TestProveSharersAtTheBound(t *testing.T) {
	lab.NeedProve(t)
	s, b, _ := server(t)
	locktest.MaxSharers(t, b, func() {
		_, err := locktest.Ask(t.Context(), b, sharer("n", 7))
		require.NoError(t, err, "it is one of them")
	})
	assert.Equal(t, "1", s.Query(t, "SELECT count(*) FROM locker_locks WHERE name <> ''"))
}

// However many transactions let sharers in beside each other, of which none counts what the others have not
// committed yet, there are no more than can be.
func TestProveManyTransactionsKeepTheBoundOfSharers(t *testing.T) {
	lab.NeedProve(t)
	const transactions, each = 100, 32
	s, url := start(t, lab.WithConfig("max_connections", "200"))
	b, pool := newBackend(t, url+"&pool_max_conns=101", nil)
	locktest.Acquire(t, b, sharer("a", 0))
	s.Exec(t, `INSERT INTO locker_locks SELECT name, 'x'||i, 'x'||i, '', token, since, kept,
		clock_timestamp() + interval '1 hour', false, 'epoch', '' FROM locker_locks, generate_series(1, 999) i WHERE name = 'a' AND sharer = ''`)
	for round := range 2 {
		var all []pgx.Tx
		for i := range transactions {
			var owners []string
			for j := range each {
				owners = append(owners, owner((round*transactions+i+1)*each+j))
			}
			args := asking("a", owners...)
			tx, err := pool.Begin(t.Context())
			require.NoError(t, err)
			_, err = tx.Exec(t.Context(), postgres.Statements()["take shares"], args[:4]...)
			require.NoError(t, err)
			_, err = tx.Exec(t.Context(), postgres.Statements()["join"], args...)
			require.NoError(t, err)
			all = append(all, tx)
		}
		for _, tx := range all {
			require.NoError(t, tx.Commit(t.Context()))
		}
		var sharers int
		_, err := fmt.Sscan(s.Query(t, "SELECT count(*) FROM locker_locks WHERE sharer > ''"), &sharers)
		require.NoError(t, err)
		t.Logf("%d sharers", sharers)
		require.LessOrEqual(t, sharers, driver.MaxSharers)
		require.Greater(t, sharers, 1000+each, "they are let in beside each other")
	}
}

// A latch is no good for another transaction: a proxy may send the rest of a request to another server
// connection, and a server that takes over has none of it.
func TestALatchEndsWithItsTransaction(t *testing.T) {
	s, b, _ := server(t)
	require.NoError(t, locktest.Acquire(t, b, sharer("a", 1)).Hold.Release(t.Context(), 0))
	conn, err := pgx.Connect(t.Context(), s.URL(s.Addr(), "sslmode=disable"))
	require.NoError(t, err)
	defer func() { _ = conn.Close(context.Background()) }()
	names := [][]byte{[]byte("a")}
	try := func(statement string, args ...any) (changed int64, err error) {
		tx, err := conn.Begin(t.Context())
		require.NoError(t, err)
		defer func() { _ = tx.Rollback(t.Context()) }()
		tag, err := tx.Exec(t.Context(), postgres.Statements()[statement], args...)
		return tag.RowsAffected(), err
	}
	_, err = try("close", names)
	require.ErrorContains(t, err, "unrecognized configuration parameter")
	_, err = try("join", asking("a", owner(2))...)
	require.ErrorContains(t, err, "unrecognized configuration parameter")
	tx, err := conn.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), postgres.Statements()["take"], names, []int64{postgres.Key("a")})
	require.NoError(t, err)
	var latched string
	require.NoError(t, tx.QueryRow(t.Context(), "SHOW locker.latched").Scan(&latched))
	require.Equal(t, "1", latched)
	require.NoError(t, tx.Commit(t.Context()))
	closed, err := try("close", names)
	require.NoError(t, err)
	assert.Zero(t, closed)
	acquire(t, b, "a", owner(3))
}

// One that has the latch beside sharers who leave before it is let in joins nobody: it asks again.
func TestThereIsNothingToJoinWhenTheLastSharerHasLeft(t *testing.T) {
	_, b, pool := server(t)
	last := locktest.Acquire(t, b, sharer("a", 1))
	args := asking("a", owner(2))
	tx := begin(t, pool)
	_, err := tx.Exec(t.Context(), postgres.Statements()["take shares"], args[:4]...)
	require.NoError(t, err)
	require.NoError(t, last.Hold.Release(t.Context(), 0))
	var token, left int64
	row := tx.QueryRow(t.Context(), postgres.Statements()["join"], args...)
	require.NoError(t, row.Scan(nil, &token, nil, &left, nil, nil, nil))
	assert.Zero(t, token)
	assert.LessOrEqual(t, left, int64(0), "nobody has it")
	require.NoError(t, tx.Commit(t.Context()))
	next := locktest.Acquire(t, b, sharer("a", 2))
	assert.Greater(t, next.Token, last.Token)
	refused(t, b, request("a", owner(3)))
	require.NoError(t, next.Hold.Release(t.Context(), 0))
	acquire(t, b, "a", owner(3))
}

// Sharers that come and go keep neither a sharer that stays from renewing, nor a writer out, on a server
// whose commits are slow. With one row that they all lock, 13 of 200 renewals failed, and no writer got in.
func TestSharersAreInNobodysWay(t *testing.T) { starve(t, 6, 1500*time.Millisecond) }

func TestProveSharersAreInNobodysWay(t *testing.T) {
	lab.NeedProve(t)
	starve(t, 18, 20*time.Second)
}

func starve(t *testing.T, readers int, lasts time.Duration) {
	_, url := start(t, lab.WithConfig("fsync", "on"), lab.WithConfig("commit_delay", "60000"),
		lab.WithConfig("commit_siblings", "0"))
	url += "&pool_max_conns=2"
	opts := &locker.Options{TTL: 5 * time.Second}
	ctx, cancel := context.WithCancel(t.Context())
	var came atomic.Int64
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	for range readers {
		c := newClient(t, url, opts)
		all.Go(func() {
			for ctx.Err() == nil {
				if l, err := c.Lock(ctx, "job", locker.Shared()); err == nil {
					came.Add(1)
					time.Sleep(20 * time.Millisecond)
					_ = l.Unlock(context.WithoutCancel(ctx))
				}
			}
		})
	}
	l := locktest.Lock(t, newClient(t, url, opts), "job", locker.Shared(), locker.NoRenew())
	renewed := 0
	for end := time.Now().Add(lasts); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		require.NoError(t, l.Renew(t.Context()), "the renewal after %d others", renewed)
		renewed++
	}
	require.NoError(t, l.Unlock(t.Context()))
	writer := newClient(t, url, opts)
	for range 3 {
		began := time.Now()
		w, err := writer.Lock(locktest.Within(t, 20*time.Second), "job")
		require.NoError(t, err, "a writer does not get in beside %d readers", came.Load())
		t.Logf("a writer got in after %v", time.Since(began).Round(time.Millisecond))
		require.NoError(t, w.Unlock(t.Context()))
	}
	t.Logf("readers came %d times, and %d renewals", came.Load(), renewed)
}
