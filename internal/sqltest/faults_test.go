//go:build unix

package sqltest_test

import (
	"context"
	"database/sql"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/fencing/sqlguard"
	"github.com/golockers/locker/internal/testserver"
)

func nothing(context.Context, *sql.Tx) error { return nil }

// behindProxy starts a proxy before the server.
func (s *store) behindProxy(t *testing.T) (*testserver.Proxy, *sql.DB) {
	t.Helper()
	if s.server == nil {
		t.Skip("there is no server")
	}
	p := testserver.StartProxy(t, s.addr)
	return p, s.openDSN(t, s.dsn(p.Addr(), password))
}

// everything calls whatever asks the database, and hands on the errors.
func everything(t *testing.T, s *store, db *sql.DB, name string, look func(what string, err error)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	g, err := sqlguard.New(s.dialect, &sqlguard.Options{Table: name})
	require.NoError(t, err)
	c, err := sqlguard.NewCounter(s.dialect, db, &sqlguard.Options{Table: name})
	require.NoError(t, err)
	look("Do", g.Do(ctx, db, nil, "r", 1, nothing))
	_, _, err = g.Mark(ctx, db, "r")
	look("Mark", err)
	_, err = g.Sweep(ctx, db, time.Hour)
	look("Sweep", err)
	_, err = c.Next(ctx, "r")
	look("Next", err)
	_, err = c.Sweep(ctx, time.Hour)
	look("Counter.Sweep", err)
	require.NoError(t, ctx.Err())
}

func testUnreachable(t *testing.T, s *store) {
	unavailable := func(what string, err error) {
		require.ErrorIs(t, err, locker.ErrUnavailable, what)
		assert.NotContains(t, err.Error(), "\n", what)
		assert.NotContains(t, err.Error(), password, what)
	}
	if s.server == nil { // a file where there is no directory
		db := s.openDSN(t, "file:"+filepath.Join(t.TempDir(), "no", "such.db"))
		everything(t, s, db, "t", unavailable)
		return
	}
	p, db := s.behindProxy(t)
	p.Set(testserver.Reset)
	everything(t, s, db, "t", unavailable)
	g, err := sqlguard.New(s.dialect, nil)
	require.NoError(t, err)
	unavailable("Create", g.Create(t.Context(), db))

	// Nobody listens there.
	p.Close()
	everything(t, s, db, "t", unavailable)

	// It takes in what it is sent, and says nothing.
	p, db = s.behindProxy(t)
	c, err := sqlguard.NewCounter(s.dialect, db, nil)
	require.NoError(t, err)
	require.NoError(t, db.PingContext(t.Context()))
	p.Set(testserver.Drop)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	begin := time.Now()
	_, err = c.Next(ctx, "r")
	unavailable("Next", err)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	assert.Less(t, time.Since(begin), 5*time.Second)
}

// The connection breaks in the middle of something.
func testConnectionLost(t *testing.T, s *store) {
	p, db := s.behindProxy(t)
	direct := s.open(t)
	g, name := s.guard(t, direct)
	st := s.state(t, direct)
	c, counters := s.counter(t, direct)
	through, err := sqlguard.NewCounter(s.dialect, db, &sqlguard.Options{Table: counters})
	require.NoError(t, err)

	t.Run("Next", func(t *testing.T) {
		first, err := c.Next(t.Context(), "r")
		require.NoError(t, err)
		require.NoError(t, db.PingContext(t.Context()))
		p.CutReply(counters)
		_, err = through.Next(t.Context(), "r")
		if err != nil { // a driver may have asked again
			require.ErrorIs(t, err, locker.ErrUnavailable)
		}
		next, err := through.Next(t.Context(), "r")
		require.NoError(t, err)
		assert.Greater(t, next, first)
	})
	t.Run("Check", func(t *testing.T) {
		tx, err := db.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		require.NoError(t, st.write(t.Context(), tx, 3))
		p.CutReply(name)
		err = g.Check(t.Context(), tx, "r", 3)
		require.ErrorIs(t, err, locker.ErrUnavailable)
		require.ErrorIs(t, tx.Commit(), sql.ErrTxDone)
		assert.Empty(t, st.history(t))
	})
	t.Run("commit", func(t *testing.T) {
		err := g.Do(t.Context(), db, nil, "r", 3, func(ctx context.Context, tx *sql.Tx) error {
			err := st.write(ctx, tx, 3)
			p.Set(testserver.Reset)
			return err
		})
		require.ErrorIs(t, err, locker.ErrUnavailable)
		require.ErrorContains(t, err, "is not known")
		p.Set(testserver.Pass)
		require.NoError(t, s.check(t, g, direct, "r", 3), "the token is still good")
	})
}

// Wrong credentials are refused by a server that can be reached, and the error
// keeps the secret.
func testCredentials(t *testing.T, s *store) {
	if s.server == nil {
		t.Skip("there is nobody to ask for a password")
	}
	const wrong = "Tr0ub4dor-and-3"
	db := s.openDSN(t, s.dsn(s.addr, wrong))
	everything(t, s, db, "t", func(what string, err error) {
		require.Error(t, err, what)
		require.NotErrorIs(t, err, locker.ErrUnavailable, what)
		assert.NotContains(t, err.Error(), wrong, what)
		assert.NotContains(t, err.Error(), "\n", what)
		assert.Contains(t, err.Error(), "locker", "it says who was refused: %s", what)
	})
}

// A table that nobody has created is a mistake, and not an outage.
func testNoTable(t *testing.T, s *store) {
	everything(t, s, s.open(t), "never_made", func(what string, err error) {
		require.Error(t, err, what)
		require.NotErrorIs(t, err, locker.ErrUnavailable, what)
		assert.Contains(t, err.Error(), "never_made", what)
	})
}
