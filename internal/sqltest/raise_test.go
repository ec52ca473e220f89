//go:build unix

package sqltest_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/fencing"
)

// Do reports an error of a statement in fn in the same way as one of the
// commit: who asks for ErrUnknown gets it wherever it came from.
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
		var e *pgconn.PgError
		require.ErrorAs(t, err, &e)
		assert.Equal(t, state, e.Code)
		assert.ErrorContains(t, err, `sqlguard: write to "r"`)
	}
	own := errors.New("changed my mind")
	err := g.Do(t.Context(), db, nil, "r", 1, func(context.Context, *sql.Tx) error { return own })
	assert.Equal(t, own, err, "what is not the database's is returned as it is")
}

// A holder that is paused in the middle of its transaction has the mark's row locked.
// The setting that the package comment names lets its successor in.
func TestAHolderPausedInItsTransactionIsPutOut(t *testing.T) {
	t.Parallel()
	s := startPostgres(t)
	db := s.open(t)
	g, _ := s.guard(t, db)
	paused := s.openDSN(t, s.dsn(s.addr, password)+"&idle_in_transaction_session_timeout=200ms")
	tx, err := paused.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	require.NoError(t, g.Check(t.Context(), tx, "r", 1))
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	require.NoError(t, g.Raise(ctx, db, "r", 2))
	require.Error(t, tx.Commit())
	assert.EqualValues(t, 2, mark(t, g, db, "r"))
}
