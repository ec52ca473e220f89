package postgres_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/conformance"
	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/campaign"
	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/internal/locktest"
	"github.com/golockers/locker/postgres"
)

// A lock that was granted survives a fail-over to a synchronous standby. This is where SurvivesFailover is
// judged each time: the tests beside it take longer.
func TestFailoverSafe(t *testing.T) {
	t.Parallel()
	primary := lab.StartPostgres(t)
	standby := lab.StartPostgres(t, lab.ReplicaOf(primary.Addr()))
	both := primary.URL(primary.Addr()+","+standby.Addr(), "sslmode=disable", "failover_safe=on")

	c := newClient(t, both, &locker.Options{TTL: time.Minute})
	require.True(t, c.Guarantees().SurvivesFailover)
	_, err := c.TryLock(t.Context(), "a")
	require.ErrorIs(t, err, driver.ErrUnavailable)
	require.ErrorContains(t, err, "no synchronous standby")

	primary.Set(t, "synchronous_commit", "off") // which the backend does not go by
	synchronous(t, primary)
	l := locktest.Lock(t, c, "a")
	before, _ := l.Token()
	sharer := locktest.Lock(t, c, "shared", locker.Shared())
	shared, _ := sharer.Token()

	// The standby does not answer: nothing is granted that it may not have.
	standby.Pause()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	_, err = c.TryLock(ctx, "while it is away")
	cancel()
	require.ErrorIs(t, err, context.DeadlineExceeded)
	const cancelled = "SELECT count(pg_cancel_backend(pid)) FROM pg_stat_activity " +
		"WHERE wait_event = 'SyncRep' AND application_name = 'locker'"
	until(t, primary, "0", cancelled) // the one that was given up does not wait any more
	unsure := later(func() error { _, err := c.TryLock(t.Context(), "cancelled"); return err })
	locktest.Eventually(t, 30*time.Second, "the server gives up its wait, and says that it has committed",
		func() bool { return primary.Query(t, cancelled) != "0" })
	select {
	case err = <-unsure:
		require.Error(t, err, "what no standby has is no grant")
	case <-time.After(300 * time.Millisecond): // it waits for the standby, which then has it
	}
	standby.Resume()
	require.NoError(t, l.Renew(t.Context()))

	primary.Kill()
	standby.Promote(t)
	other := newClient(t, standby.URL(standby.Addr(), "sslmode=disable"), nil)
	_, err = other.TryLock(t.Context(), "a")
	require.ErrorIs(t, err, driver.ErrHeld, "the new primary has the lock")
	_, err = other.TryLock(t.Context(), "shared")
	require.ErrorIs(t, err, driver.ErrHeld, "and who shares one")
	joined, err := other.TryLock(t.Context(), "shared", locker.Shared())
	require.NoError(t, err)
	same, _ := joined.Token()
	assert.Equal(t, shared, same)
	next, err := other.TryLock(t.Context(), "b")
	require.NoError(t, err)
	after, _ := next.Token()
	assert.Greater(t, after, before)
	require.NoError(t, l.Err())
	locktest.Eventually(t, 30*time.Second, "leases go on", func() bool { return l.Renew(t.Context()) == nil })
	require.NoError(t, sharer.Renew(t.Context()))
	_ = l.Unlock(t.Context())
	locktest.Lock(t, other, "a")
}

// The suite's own check: a lease goes on over a fail-over, and the name can be had again when there is a
// synchronous standby again.
func TestProveConformanceOfFailover(t *testing.T) {
	lab.NeedProve(t)
	primary, standby := startPair(t)
	both := primary.URL(primary.Addr()+","+standby.Addr(), "sslmode=disable",
		"target_session_attrs=read-write")
	conformance.RunOnly(t, conformance.Harness{
		TTL: time.Second,
		New: func(ct conformance.T) driver.Backend {
			b, _ := connect(ct, both, &postgres.Options{FailoverSafe: true})
			require.True(t, b.Guarantees().SurvivesFailover, "or there would be nothing to prove")
			return b
		},
		Failover: func(conformance.T) {
			primary.Kill()
			standby.Promote(t)
			lab.StartPostgres(t, lab.ReplicaOf(standby.Addr()))
			synchronous(t, standby)
		},
		KnownGoroutines: []string{"os.(*Process).pidfdWait"},
	}, "failover", "histories")
}

// Server after server is lost to its standby, while holders hold and waiters wait: no two hold, and tokens
// rise in the order of the grants, also across names.
func TestAgeingFailovers(t *testing.T) {
	t.Parallel()
	lab.NeedProve(t)
	primary, standby := startPair(t)

	// The clients have one address, which leads to the server that has taken over.
	way := lab.StartProxy(t, primary.Addr())
	u := primary.URL(way.Addr(), "sslmode=disable", "failover_safe=on", "pool_max_conns=4")
	var all []*locker.Client
	for range 4 {
		all = append(all, newClient(t, u, &locker.Options{TTL: 4 * time.Second, OutageTimeout: time.Minute}))
	}
	c := campaign.Begin(t, campaign.Names(2), false, 1, all...)
	kept := locktest.Lock(t, newClient(t, u, &locker.Options{TTL: time.Minute}), "kept")
	for range 3 {
		c.GoesOn(20, 30*time.Second)
		primary.Kill()
		standby.Promote(t)
		way.Retarget(standby.Addr())
		primary, standby = standby, lab.StartPostgres(t, lab.ReplicaOf(standby.Addr()))
		synchronous(t, primary)
		c.GoesOn(20, 30*time.Second)
		require.NoError(t, kept.Err(), "a lock that is held survives")
		_, err := newClient(t, u, nil).TryLock(t.Context(), "kept")
		require.ErrorIs(t, err, driver.ErrHeld)
	}
	require.NoError(t, kept.Unlock(t.Context()))
	overlaps, _ := c.End(newClient(t, u, nil))
	assert.Empty(t, overlaps)
}

// A server that has become read-only is left for the one that has taken over.
func TestProveReadOnlyAfterAFailover(t *testing.T) {
	lab.NeedProve(t)
	t.Parallel()
	first, second := lab.StartPostgres(t), lab.StartPostgres(t)
	c := newClient(t, first.URL(first.Addr()+","+second.Addr(), "sslmode=disable"), nil)
	// The second has a table, as a standby has.
	other := locktest.Lock(t, newClient(t, second.URL(second.Addr(), "sslmode=disable"), nil), "b")
	require.NoError(t, other.Unlock(t.Context()))
	l, err := c.TryLock(t.Context(), "a")
	require.NoError(t, err)
	require.NoError(t, l.Unlock(t.Context()))
	first.Set(t, "default_transaction_read_only", "on")
	tries := 0
	locktest.Eventually(t, 30*time.Second, "a connection reads the new setting before its next command, or the one after",
		func() bool {
			tries++ // with a name of its own: no release is the next command
			_, err = c.TryLock(t.Context(), fmt.Sprint(tries))
			return err != nil
		})
	require.ErrorIs(t, err, driver.ErrUnavailable)
	require.ErrorContains(t, err, "default_transaction_read_only is on")
	l = locktest.Lock(t, c, "a")
	require.NoError(t, l.Unlock(t.Context()))
	assert.Equal(t, "1", second.Query(t, "SELECT count(*) FROM locker_locks WHERE name = 'a'"))
}

// startPair starts a primary and its synchronous standby.
func startPair(t *testing.T) (primary, standby *lab.Postgres) {
	t.Helper()
	primary = lab.StartPostgres(t)
	standby = lab.StartPostgres(t, lab.ReplicaOf(primary.Addr()))
	synchronous(t, primary)
	return primary, standby
}

// synchronous makes commits on s wait for its standby.
func synchronous(t *testing.T, s *lab.Postgres) {
	t.Helper()
	s.Set(t, "synchronous_standby_names", "standby")
	until(t, s, "sync", "SELECT sync_state FROM pg_stat_replication")
}

// A commit that no standby has is neither a grant nor a renewal, even if the server says that it succeeded:
// two would hold after the fail-over.
func TestProveWhatNoStandbyHasIsNotGranted(t *testing.T) {
	lab.NeedProve(t)
	t.Parallel()
	primary, standby := startPair(t)
	const waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
	give := map[string]func(){
		"cancelled": func() {
			primary.Exec(t,
				"SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'")
		},
		"no standby any more": func() { primary.Set(t, "synchronous_standby_names", "") },
		"no standby for a moment": func() {
			primary.Set(t, "synchronous_standby_names", "")
			until(t, primary, "0", waiting)
			primary.Set(t, "synchronous_standby_names", "standby")
		},
	}
	for name, addr := range map[string]string{"direct": primary.Addr(),
		"pgbouncer": lab.StartPgbouncer(t, primary)} {
		b, _ := newBackend(t, primary.URL(addr, "sslmode=disable", "default_query_exec_mode=exec"),
			&postgres.Options{FailoverSafe: true})
		held := acquire(t, b, "held at "+name, owner(1))
		for how, give := range give {
			t.Run(name+"/"+how, func(t *testing.T) {
				defer synchronous(t, primary)
				standby.Pause()
				defer standby.Resume()
				for what, ask := range map[string]func(ctx context.Context) error{
					"grant": func(ctx context.Context) error {
						_, err := locktest.Ask(ctx, b, request("granted "+how+name, owner(2)))
						return err
					},
					"renewal": func(ctx context.Context) error { _, err := held.Hold.Renew(ctx); return err },
					"RaiseToken": func(ctx context.Context) error {
						return held.Hold.(driver.TokenRaiser).RaiseToken(ctx, held.Token+1<<40)
					},
				} {
					var answer chan error
					var ctx context.Context
					var cancel context.CancelFunc
					require.Eventually(t, func() bool { // the server begins to wait for a standby some time after it is told
						primary.Set(t, "synchronous_standby_names", "standby")
						ctx, cancel = context.WithTimeout(t.Context(), 5*time.Second)
						answer = make(chan error, 1)
						go func(ctx context.Context, answer chan<- error) { answer <- ask(ctx) }(ctx, answer)
						for range 100 {
							if primary.Query(t, waiting) == "1" {
								return true
							}
							time.Sleep(time.Millisecond)
						}
						cancel()
						require.Error(t, <-answer, what)
						return false
					}, 30*time.Second, time.Millisecond)
					give()
					select {
					case err := <-answer:
						require.Error(t, err, what)
					case <-time.After(500 * time.Millisecond): // it waits for the standby
						cancel()
						require.Error(t, <-answer, what)
					}
					cancel()
				}
			})
		}
	}
}

// One confirmation is enough for the server with ANY 1, and the fail-over may go to the other standby: each
// that may take over has a lock before it is granted.
func TestProveEachStandbyThatMayTakeOverHasIt(t *testing.T) {
	lab.NeedProve(t)
	t.Parallel()
	primary, _ := startPair(t)
	b := lab.StartPostgres(t, lab.ReplicaOf(primary.Addr()), lab.WithConfig("primary_conninfo",
		fmt.Sprintf("host=127.0.0.1 port=%d user=%s password=%s application_name=b", primary.Port(),
			lab.PostgresUser, lab.PostgresPassword)))
	locks, _ := newBackend(t, primary.URL(primary.Addr(), "sslmode=disable"),
		&postgres.Options{FailoverSafe: true, Timeout: 2 * time.Second})
	for _, names := range []string{"*", "ANY 1 (standby, *)", ""} {
		primary.Set(t, "synchronous_standby_names", names)
		g, err := locktest.Ask(t.Context(), locks, request("a", owner(1)))
		require.ErrorIs(t, err, driver.ErrUnavailable)
		require.ErrorContains(t, err, "name each standby")
		require.Nil(t, g.Hold, "nothing is left with %q", names)
	}
	for i, names := range []string{`FIRST 1 (standby, "B")`, "standby, b", "ANY 1 (standby, b)"} {
		primary.Set(t, "synchronous_standby_names", names)
		locktest.Eventually(t, 30*time.Second, "its connections know the names, and both standbys are there", func() bool {
			_, err := locktest.Ask(t.Context(), locks, request("both "+names, owner(i)))
			return err == nil
		})
		b.Pause()
		g, err := locktest.Ask(t.Context(), locks, request("one "+names, owner(i)))
		require.ErrorIs(t, err, driver.ErrUnavailable, names)
		require.ErrorContains(t, err, "may take over")
		require.NotNil(t, g.Hold)
		b.Resume()
	}
	acquire(t, locks, "a", owner(2))
	primary.Kill()
	b.Promote(t)
	other := newClient(t, b.URL(b.Addr(), "sslmode=disable"), nil)
	_, err := other.TryLock(t.Context(), "a")
	require.ErrorIs(t, err, driver.ErrHeld)
}

// Each standby that is named has to have it, whatever the server takes for synchronous: a change of the names
// gets there later.
func TestAStandbyIsKnownByItsName(t *testing.T) {
	t.Parallel()
	s := lab.StartPostgres(t, lab.WithConfig("synchronous_commit", "local"))
	conn, err := pgx.Connect(t.Context(), s.URL(s.Addr(), "sslmode=disable"))
	require.NoError(t, err)
	defer func() { _ = conn.Close(context.Background()) }()
	_, err = conn.Exec(t.Context(), `SET search_path = pg_temp, pg_catalog;
		CREATE TEMP VIEW pg_stat_replication AS SELECT * FROM (VALUES
			('a', 'quorum', 'FFFFFFFF/0'::pg_lsn), ('B', 'quorum', 'FFFFFFFF/0'), ('b', 'async', NULL),
			('x "y", z', 'sync', 'FFFFFFFF/0'), ('twice', 'sync', 'FFFFFFFF/0'), ('twice', 'sync', '0/1'))
		AS r (application_name, sync_state, flush_lsn)`, pgx.QueryExecModeSimpleProtocol)
	require.NoError(t, err)
	for names, want := range map[string]bool{
		"a": true, "a, b": true, `ANY 1 (A, "b")`: true, "first 2(b,a)": true, "2 (a, b)": true, ` 1 ( "x ""y"", z" ) `: true,
		"a, c": false, "ANY 1 (a, c)": false, "c": false, "twice": false, "a, twice": false, `"a, b"`: false,
		`"a", "x"`: false, "": false,
	} {
		s.Set(t, "synchronous_standby_names", names)
		require.Eventually(t, func() bool {
			var now string
			err := conn.QueryRow(t.Context(), "SHOW synchronous_standby_names").Scan(&now)
			return err == nil && now == names
		}, 30*time.Second, time.Millisecond)
		var has bool
		require.NoError(t, conn.QueryRow(t.Context(), postgres.ConfirmSQL, "").Scan(nil, nil, nil, nil, nil, &has), names)
		assert.Equal(t, want, has, names)
	}
}
