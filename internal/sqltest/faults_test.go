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
	"github.com/golockers/locker/internal/sqlstate"
)

func nothing(context.Context, *sql.Tx) error { return nil }

// everything calls whatever asks the database, and hands on the errors.
func everything(t *testing.T, s *store, db *sql.DB, name string, look func(what string, err error)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
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
	dsn := "file:" + filepath.Join(t.TempDir(), "no", "such.db") // where there is no directory
	if s.server != nil {
		p := lab.StartProxy(t, s.addr)
		p.Set(lab.Reset)
		dsn = s.dsn(p.Addr(), password)
	}
	everything(t, s, s.openDSN(t, dsn), "t", func(what string, err error) {
		require.ErrorIs(t, err, locker.ErrUnavailable, what)
		assert.NotContains(t, err.Error(), "\n", what)
		assert.NotContains(t, err.Error(), password, what)
	})
}

// The connection breaks before the commit: nothing is open then.
func testConnectionLost(t *testing.T, s *store) {
	if s.server == nil {
		t.Skip("there is no server")
	}
	p := lab.StartProxy(t, s.addr)
	db, direct := s.openDSN(t, s.dsn(p.Addr(), password)), s.open(t)
	g, name := s.guard(t, direct)
	st := s.state(t, direct)
	p.CutReply(name)
	checked := g.Do(t.Context(), db, nil, "r", 3, nothing)
	written := g.Do(t.Context(), db, nil, "r", 3, func(ctx context.Context, tx *sql.Tx) error {
		p.Set(lab.Reset)
		return st.write(ctx, tx, 3)
	})
	for _, err := range []error{checked, written} {
		require.ErrorIs(t, err, locker.ErrUnavailable, "what fn's driver says is told as what Check's does")
		require.NotErrorIs(t, err, fencing.ErrUnknown, "no commit was sent")
	}
	assert.Empty(t, st.history(t))
	assert.Zero(t, mark(t, g, direct, "r"))
}

// A wrong password and a table that nobody has created are mistakes, and the error keeps the secret.
func testNotAnOutage(t *testing.T, s *store) {
	const wrong = "Tr0ub4dor-and-3"
	for says, db := range map[string]*sql.DB{"never_made": s.open(t), "locker": s.openDSN(t, s.dsn(s.addr, wrong))} {
		if says == "locker" && s.server == nil {
			continue // there is nobody to ask for a password
		}
		everything(t, s, db, "never_made", func(what string, err error) {
			require.ErrorContains(t, err, says, what)
			require.NotErrorIs(t, err, locker.ErrUnavailable, what)
			assert.NotContains(t, err.Error(), wrong, what)
			assert.NotContains(t, err.Error(), "\n", what)
		})
	}
}

// Do reports an error of a statement in fn in the same way as one of the commit: a caller that asks for
// ErrUnknown gets it wherever it came from.
func TestWhatTheDriverSaysInFn(t *testing.T) {
	t.Parallel()
	s := startPostgres(t)
	db := s.open(t)
	g, _ := s.guard(t, db)
	for state, want := range map[string]error{"40003": fencing.ErrUnknown, "57P01": locker.ErrUnavailable} {
		err := g.Do(t.Context(), db, nil, "r", 1, func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx,
				"DO $$ BEGIN RAISE EXCEPTION 'on purpose' USING ERRCODE = '"+state+"'; END $$")
			return err
		})
		require.ErrorIs(t, err, want)
		assert.Equal(t, state, sqlstate.Of(err))
		assert.ErrorContains(t, err, `sqlguard: write to "r"`)
	}
	own := errors.New("changed my mind")
	err := g.Do(t.Context(), db, nil, "r", 1, func(context.Context, *sql.Tx) error { return own })
	assert.Equal(t, own, err, "what is not the database's is returned as it is")
}
