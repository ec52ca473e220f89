//go:build unix

package sqltest_test

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/fencing"
	"github.com/golockers/locker/fencing/sqlguard"
	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/internal/locktest"
)

func nothing(context.Context, *sql.Tx) error { return nil }

// behindProxy starts a proxy before the server.
func (s *store) behindProxy(t *testing.T) (*lab.Proxy, *sql.DB) {
	t.Helper()
	if s.server == nil {
		t.Skip("there is no server")
	}
	p := lab.StartProxy(t, s.addr)
	return p, s.openDSN(t, s.dsn(p.Addr(), password))
}

// everything calls whatever asks the database, and hands on the errors.
func everything(t *testing.T, s *store, db *sql.DB, name string, look func(what string, err error)) {
	t.Helper()
	ctx := locktest.Within(t, 20*time.Second)
	g, err := sqlguard.New(s.dialect, &sqlguard.Options{Table: name})
	require.NoError(t, err)
	look("Do", g.Do(ctx, db, nil, "r", 1, nothing))
	_, _, err = g.Mark(ctx, db, "r")
	look("Mark", err)
	_, err = g.Sweep(ctx, db, time.Hour)
	look("Sweep", err)
	look("Raise", g.Raise(ctx, db, "r", 1))
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
	p.Set(lab.Reset)
	everything(t, s, db, "t", unavailable)
	g, err := sqlguard.New(s.dialect, nil)
	require.NoError(t, err)
	unavailable("Create", g.Create(t.Context(), db))

	// Nobody listens there.
	p.Close()
	everything(t, s, db, "t", unavailable)

	// It takes in what it is sent, and says nothing.
	p, db = s.behindProxy(t)
	require.NoError(t, db.PingContext(t.Context()))
	p.Set(lab.Drop)
	ctx := locktest.Within(t, 300*time.Millisecond)
	begin := time.Now()
	err = g.Raise(ctx, db, "r", 1)
	require.Error(t, err)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	assert.Less(t, time.Since(begin), 5*time.Second)
}

// The connection breaks in the middle of something.
func testConnectionLost(t *testing.T, s *store) {
	p, db := s.behindProxy(t)
	direct := s.open(t)
	g, name := s.guard(t, direct)
	st := s.state(t, direct)
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
			p.Set(lab.Reset)
			return err
		})
		require.ErrorIs(t, err, locker.ErrUnavailable)
		require.ErrorIs(t, err, fencing.ErrUnknown)
		p.Set(lab.Pass)
		require.NoError(t, s.check(t, g, direct, "r", 3), "the token is still good")
	})
	t.Run("answer to the commit", func(t *testing.T) {
		err := g.Do(t.Context(), db, nil, "r", 4, func(ctx context.Context, tx *sql.Tx) error {
			p.CutReply(s.commit)
			return st.write(ctx, tx, 4)
		})
		require.ErrorIs(t, err, locker.ErrUnavailable)
		require.ErrorIs(t, err, fencing.ErrUnknown)
		assert.EqualValues(t, 4, mark(t, g, direct, "r"))
		assert.Equal(t, []fencing.Token{4}, st.history(t), "it was committed")
		require.NoError(t, s.check(t, g, direct, "r", 4), "the token is still good")
	})
	t.Run("before the commit", func(t *testing.T) {
		err := g.Do(t.Context(), db, nil, "r", 5, func(ctx context.Context, tx *sql.Tx) error {
			p.Set(lab.Reset)
			return st.write(ctx, tx, 5)
		})
		p.Set(lab.Pass)
		require.ErrorIs(t, err, locker.ErrUnavailable, "what fn's driver says is told as what Check's does")
		require.NotErrorIs(t, err, fencing.ErrUnknown, "no commit was sent")
		assert.Equal(t, []fencing.Token{4}, st.history(t))
	})
}

// The commit is under way when its context ends: it is written, or will be, or
// not, and nobody may take that for a failure.
func testEndDuringCommit(t *testing.T, s *store) {
	p, db := s.behindProxy(t)
	direct := s.open(t)
	g, _ := s.guard(t, direct)
	st := s.state(t, direct)
	// do commits with a token, and has onCommit called when that is under way. It
	// reports whether it was.
	do := func(ctx context.Context, token fencing.Token, onCommit func()) (error, bool) {
		require.NoError(t, db.PingContext(t.Context()))
		over := make(chan struct{})
		context.AfterFunc(ctx, func() {
			if s.waits { // for an answer, whatever its context says: it gets a reset
				p.Set(lab.Reset)
			}
			close(over)
		})
		unsent := func() bool { return true }
		err := g.Do(ctx, db, nil, "r", token, func(ctx context.Context, tx *sql.Tx) error {
			unsent = p.OnRequest(s.commit, func(*lab.Link) {
				p.Replies(lab.Hold)
				onCommit()
			})
			return st.write(ctx, tx, token)
		})
		<-over
		p.Set(lab.Pass)
		return err, !unsent()
	}
	unknown := func(t *testing.T, err, why error, token fencing.Token) {
		require.ErrorIs(t, err, why)
		require.ErrorIs(t, err, fencing.ErrUnknown)
		require.Equal(t, why == context.DeadlineExceeded, errors.Is(err, locker.ErrUnavailable), //nolint:errorlint // which
			"no answer in time, or given up")
		assert.NotContains(t, err.Error(), "\n")
		require.NoError(t, s.check(t, g, direct, "r", token), "the token is still good")
		require.ErrorIs(t, s.check(t, g, direct, "r", token-1), fencing.ErrStale)
	}
	t.Run("cancel", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		err, sent := do(ctx, 10, cancel)
		require.True(t, sent)
		unknown(t, err, context.Canceled, 10)
	})
	t.Run("deadline", func(t *testing.T) {
		// More time where the machine was too slow for as much as sending the commit.
		for token, timeout := fencing.Token(20), 500*time.Millisecond; ; token, timeout = token+1, 2*timeout {
			ctx := locktest.Within(t, timeout)
			err, sent := do(ctx, token, func() {})
			if sent || timeout > time.Minute {
				unknown(t, err, context.DeadlineExceeded, token)
				return
			}
		}
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
