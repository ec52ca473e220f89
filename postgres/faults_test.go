package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/conformance"
	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/postgres"
)

// newClient opens a Client by URL.
func newClient(t *testing.T, url string, opts *locker.Options) *locker.Client {
	t.Helper()
	c, err := postgres.Openers.Open(t.Context(), url, opts)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// Connections that are ended by an administrator again and again cost no lease and leave nothing behind.
func TestBackendsKilled(t *testing.T) {
	t.Parallel()
	s := lab.StartPostgres(t)
	url := s.URL(s.Addr(), "sslmode=disable")
	c, other := newClient(t, url, nil), newClient(t, url, nil)
	kept, err := c.Lock(t.Context(), "kept", locker.TTL(10*time.Second))
	require.NoError(t, err)
	lock := func(c *locker.Client) error {
		l, err := c.Lock(t.Context(), "passed on")
		if err == nil {
			_ = l.Unlock(t.Context()) // of which the outcome may not be known
		}
		return err
	}
	var all sync.WaitGroup
	end := time.Now().Add(3 * time.Second)
	for i := range 4 {
		all.Go(func() {
			for time.Now().Before(end) {
				assert.NoError(t, lock([]*locker.Client{c, other}[i%2]))
			}
		})
	}
	for time.Now().Before(end) {
		s.Exec(t, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'locker' AND random() < 0.5`)
		time.Sleep(100 * time.Millisecond)
	}
	all.Wait()
	require.NoError(t, kept.Err())
	if err = kept.Unlock(t.Context()); err != nil {
		require.ErrorIs(t, err, locker.ErrUnavailable, "it is tried again in the background")
	}
}

// A connection that is silent costs what is under way on it, and nobody else.
func TestASilentConnectionIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	s := lab.StartPostgres(t)
	p := lab.StartProxy(t, s.Addr())
	b, _ := newBackend(t, s.URL(p.Addr(), "sslmode=disable", "pool_max_conns=4"), nil)
	require.NoError(t, acquire(t, b, "a", owner(1)).Hold.Release(t.Context()))
	p.Set(lab.Drop)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	began := time.Now()
	g, err := b.Acquire(ctx, request("a", owner(2)))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NotNil(t, g.Hold, "its outcome is not known")
	assert.Less(t, time.Since(began), 2*time.Second, "which is less than the timeout")
	p.Set(lab.Pass)
	began = time.Now()
	require.Eventually(t, func() bool {
		_, err := b.Acquire(t.Context(), request("b", owner(3)))
		return err == nil
	}, 5*time.Second, time.Millisecond)
	assert.Less(t, time.Since(began), 3*time.Second)
}

// A full disk is no lock, and no loss of one.
func TestDiskFull(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("only root can mount a small file system")
	}
	dir, err := os.MkdirTemp("", "locker-full-")
	require.NoError(t, err)
	defer func() { _ = os.Remove(dir) }()
	if err := exec.CommandContext(t.Context(), "mount", "-t", "tmpfs", "-o", "size=160m", "tmpfs", dir).Run(); err != nil {
		t.Skip("cannot mount a file system here: ", err)
	}
	t.Cleanup(func() { _ = exec.CommandContext(context.Background(), "umount", dir).Run() })
	s := lab.StartPostgres(t, lab.WithPostgresDir(dir), lab.WithSetting("min_wal_size", "32MB"), lab.WithSetting("max_wal_size", "32MB"))
	c := newClient(t, s.URL(s.Addr(), "sslmode=disable"), nil)
	l, err := c.TryLock(t.Context(), "first")
	require.NoError(t, err)
	require.NoError(t, l.Unlock(t.Context()))
	filler := dir + "/filler"
	_ = os.WriteFile(filler, make([]byte, 200<<20), 0o600)
	var refused error
	for i := 0; refused == nil && i < 20000; i++ {
		_, refused = c.TryLock(t.Context(), fmt.Sprint(i, strings.Repeat("x", 400)))
	}
	require.ErrorIs(t, refused, locker.ErrUnavailable, "when the disk was full")
	require.NoError(t, os.Remove(filler))
	require.Eventually(t, func() bool { // a server whose log has no room crashes, and recovers
		if !s.Running() {
			s.Restart(t)
		}
		_, err := c.TryLock(t.Context(), "after")
		return err == nil
	}, 20*time.Second, 50*time.Millisecond)
}

// Timeouts of the server's, for statements and for idle transactions, cost nothing but the transaction.
func TestServerTimeouts(t *testing.T) {
	t.Parallel()
	s := lab.StartPostgres(t, lab.WithSetting("statement_timeout", "2s"), lab.WithSetting("lock_timeout", "200ms"),
		lab.WithSetting("idle_in_transaction_session_timeout", "1s"))
	_, patient := newBackend(t, s.URL(s.Addr(), "sslmode=disable", "options=-c%20idle_in_transaction_session_timeout%3D0"), nil)
	b, pool := newBackend(t, s.URL(s.Addr(), "sslmode=disable"), nil)
	c := locker.New(b, nil)
	defer func() { _ = c.Close() }()
	l, err := c.Lock(t.Context(), "a")
	require.NoError(t, err)
	tx, err := pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.Background()) }()
	require.NoError(t, postgres.Held(t.Context(), tx, l))
	require.Eventually(t, func() bool { return s.Query(t, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'") == "0" }, 5*time.Second, 10*time.Millisecond)
	require.Error(t, tx.Commit(t.Context()), "the server has ended it")

	// Somebody has locked the row by hand.
	other, err := patient.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = other.Rollback(context.Background()) }()
	_, err = other.Exec(t.Context(), "SELECT 1 FROM locker_locks FOR UPDATE")
	require.NoError(t, err)
	err = l.Renew(t.Context())
	require.ErrorIs(t, err, locker.ErrUnavailable)
	require.NoError(t, other.Rollback(t.Context()))
	require.NoError(t, l.Renew(t.Context()))
	require.NoError(t, l.Unlock(t.Context()))
}

// The server's clock is what counts, and a step of it is told for what it is.
func TestClockSteps(t *testing.T) {
	t.Parallel()
	s := lab.StartPostgres(t, lab.WithPostgresClock())
	url := s.URL(s.Addr(), "sslmode=disable")
	a, b := newClient(t, url, nil), newClient(t, url, nil)
	s.JumpClock(t, 40*time.Second) // before, it is just another time than the clients'
	l, err := a.Lock(t.Context(), "x", locker.TTL(20*time.Second))
	require.NoError(t, err)
	_, err = b.TryLock(t.Context(), "x")
	require.ErrorIs(t, err, locker.ErrHeld)
	s.JumpClock(t, -time.Hour)
	require.NoError(t, l.Renew(t.Context()))
	_, err = b.TryLock(t.Context(), "x")
	require.ErrorIs(t, err, locker.ErrHeld)
	require.NoError(t, l.Unlock(t.Context()))
	l, err = a.Lock(t.Context(), "x", locker.TTL(20*time.Second))
	require.NoError(t, err, "what is released is free whatever the clock says")
	s.JumpClock(t, 2*time.Hour)
	next, err := b.TryLock(t.Context(), "x")
	require.NoError(t, err, "a step forward frees it early")
	require.ErrorIs(t, l.Renew(t.Context()), locker.ErrLost)
	first, _ := l.Token()
	second, _ := next.Token()
	assert.Greater(t, second, first)
}

// A fail-over to a standby that is behind gives a lock to a second holder, with a token that is no greater.
func TestFailoverToAnAsynchronousStandbyLosesLocks(t *testing.T) {
	t.Parallel()
	primary := lab.StartPostgres(t)
	way := lab.StartProxy(t, primary.Addr())
	standby := lab.StartPostgres(t, lab.StandbyThrough(primary, way.Addr()))
	c := newClient(t, primary.URL(primary.Addr(), "sslmode=disable"), nil)
	_, err := c.Lock(t.Context(), "known to both")
	require.NoError(t, err)
	require.Eventually(t, func() bool { n, _ := standby.Try(countLocks); return n == "1" }, 10*time.Second, 5*time.Millisecond)
	way.Set(lab.Drop)
	_, err = c.Lock(t.Context(), "lost")
	require.NoError(t, err, "it does not wait for the standby")
	primary.Kill()
	standby.Promote(t)
	other := newClient(t, standby.URL(standby.Addr(), "sslmode=disable"), nil)
	_, err = other.TryLock(t.Context(), "known to both")
	require.ErrorIs(t, err, locker.ErrHeld)
	_, err = other.TryLock(t.Context(), "lost")
	require.NoError(t, err)
}

const countLocks = "SELECT count(*) FROM locker_locks WHERE owner <> ''"

// A lock that was granted survives a fail-over to a synchronous standby.
func TestFailoverSafe(t *testing.T) {
	t.Parallel()
	primary := lab.StartPostgres(t)
	standby := lab.StartPostgres(t, lab.StandbyOf(primary))
	both := primary.URL(primary.Addr()+","+standby.Addr(), "sslmode=disable", "failover_safe=on")

	c := newClient(t, both, &locker.Options{TTL: 20 * time.Second})
	require.True(t, c.Guarantees().SurvivesFailover)
	_, err := c.TryLock(t.Context(), "a")
	require.ErrorIs(t, err, locker.ErrUnavailable)
	require.ErrorContains(t, err, "no synchronous standby")

	primary.Set(t, "synchronous_standby_names", "standby")
	primary.Set(t, "synchronous_commit", "off") // which the backend does not go by
	require.Eventually(t, func() bool {
		return primary.Query(t, "SELECT sync_state FROM pg_stat_replication") == "sync"
	}, 10*time.Second, 10*time.Millisecond)
	l, err := c.Lock(t.Context(), "a")
	require.NoError(t, err)
	before, _ := l.Token()

	// The standby does not answer: nothing is granted that it may not have.
	standby.Pause()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	_, err = c.TryLock(ctx, "while it is away")
	cancel()
	require.ErrorIs(t, err, context.DeadlineExceeded)
	standby.Resume()
	require.NoError(t, l.Renew(t.Context()))

	primary.Kill()
	standby.Promote(t)
	other := newClient(t, standby.URL(standby.Addr(), "sslmode=disable"), nil)
	_, err = other.TryLock(t.Context(), "a")
	require.ErrorIs(t, err, locker.ErrHeld, "the new primary has the lock")
	next, err := other.TryLock(t.Context(), "b")
	require.NoError(t, err)
	after, _ := next.Token()
	assert.Greater(t, after, before)
	require.NoError(t, l.Err())
	require.Eventually(t, func() bool { return l.Renew(t.Context()) == nil }, 10*time.Second, 10*time.Millisecond, "leases go on")
	_ = l.Unlock(t.Context())
	require.Eventually(t, func() bool { _, err := other.TryLock(t.Context(), "a"); return err == nil }, 10*time.Second, 10*time.Millisecond)
}

// The suite's own check: a lease goes on over a fail-over, and the name can be had again when there is a
// synchronous standby again.
func TestConformanceOfFailover(t *testing.T) {
	primary := lab.StartPostgres(t)
	standby := lab.StartPostgres(t, lab.StandbyOf(primary))
	synchronous := func(s *lab.Postgres) {
		s.Set(t, "synchronous_standby_names", "standby")
		require.Eventually(t, func() bool { return s.Query(t, "SELECT sync_state FROM pg_stat_replication") == "sync" }, 20*time.Second, 10*time.Millisecond)
	}
	synchronous(primary)
	both := primary.URL(primary.Addr()+","+standby.Addr(), "sslmode=disable", "target_session_attrs=read-write")
	conformance.RunOnly(t, conformance.Harness{
		TTL: time.Second,
		New: func(ct conformance.T) locker.Backend {
			b, pool, err := dial(context.Background(), both, &postgres.Options{FailoverSafe: true})
			if err != nil {
				ct.Errorf("dial: %v", err)
				ct.FailNow()
			}
			ct.Cleanup(pool.Close)
			require.True(t, b.Guarantees().SurvivesFailover, "or there would be nothing to prove")
			return b
		},
		Failover: func(conformance.T) {
			primary.Kill()
			standby.Promote(t)
			lab.StartPostgres(t, lab.StandbyOf(standby))
			synchronous(standby)
		},
		KnownGoroutines: []string{"os.(*Process).pidfdWait"},
	}, "failover")
}

// A server that has become read-only is left for the one that has taken over.
func TestReadOnlyAfterAFailover(t *testing.T) {
	t.Parallel()
	first, second := lab.StartPostgres(t), lab.StartPostgres(t)
	c := newClient(t, first.URL(first.Addr()+","+second.Addr(), "sslmode=disable"), nil)
	l, err := c.TryLock(t.Context(), "a")
	require.NoError(t, err)
	require.NoError(t, l.Unlock(t.Context()))
	first.Set(t, "default_transaction_read_only", "on")
	_, err = c.TryLock(t.Context(), "a")
	require.ErrorIs(t, err, locker.ErrUnavailable)
	require.ErrorContains(t, err, "it is a standby")
	l, err = c.Lock(t.Context(), "a")
	require.NoError(t, err)
	require.NoError(t, l.Unlock(t.Context()))
	assert.Equal(t, "1", second.Query(t, "SELECT count(*) FROM locker_locks"))
}

// Where a proxy swallows what NOTIFY sends, it is said, and waiters get in all the same.
func TestPgbouncer(t *testing.T) {
	t.Parallel()
	s := lab.StartPostgres(t)
	addr := lab.StartPgbouncer(t, s)
	var log strings.Builder
	logger := slog.New(slog.NewTextHandler(&log, nil))
	c := newClient(t, s.URL(addr, "sslmode=disable", "default_query_exec_mode=exec"), &locker.Options{Logger: logger})
	direct := newClient(t, s.URL(s.Addr(), "sslmode=disable"), nil)
	// With prepared statements, of which pgbouncer knows nothing here, it cannot work.
	var errs []string
	for range 8 {
		c, err := postgres.Openers.Open(t.Context(), s.URL(addr, "sslmode=disable"), nil)
		if err == nil {
			defer func() { _ = c.Close() }()
			_, err = c.TryLock(t.Context(), "mixed up")
		}
		if err != nil && !errors.Is(err, locker.ErrHeld) {
			require.NotErrorIs(t, err, locker.ErrUnavailable)
			errs = append(errs, err.Error())
		}
	}
	assert.Contains(t, strings.Join(errs, "\n"), "default_query_exec_mode=exec")

	l, err := direct.Lock(t.Context(), "a")
	require.NoError(t, err)
	got := make(chan error, 1)
	go func() {
		l, err := c.Lock(t.Context(), "a")
		if err == nil {
			err = l.Unlock(t.Context())
		}
		got <- err
	}()
	time.Sleep(3 * time.Second) // for the proof that nothing is heard
	require.NoError(t, l.Unlock(t.Context()))
	require.NoError(t, <-got)
	require.NoError(t, c.Close())
	assert.Contains(t, log.String(), "NOTIFY is not heard")
}
