//go:build unix

package sqltest_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/fencing"
)

func testRaise(t *testing.T, s *store) {
	db := s.open(t)
	g, _ := s.guard(t, db)
	st := s.state(t, db)
	write := func(token fencing.Token) error {
		return s.insist(func() error {
			return g.Do(t.Context(), db, nil, "r", token, func(ctx context.Context, tx *sql.Tx) error { return st.write(ctx, tx, token) })
		})
	}
	require.NoError(t, write(1))
	require.NoError(t, g.Raise(t.Context(), db, "r", 2))
	require.NoError(t, g.Raise(t.Context(), db, "r", 2), "again, by the same holder")
	assert.EqualValues(t, 2, mark(t, g, db, "r"))
	var stale *fencing.StaleError
	require.ErrorAs(t, write(1), &stale)
	assert.Equal(t, fencing.StaleError{Resource: "r", Token: 1, Mark: 2}, *stale, "nobody has written yet, and it is too late all the same")
	require.ErrorIs(t, g.Raise(t.Context(), db, "r", 1), fencing.ErrStale)
	require.ErrorIs(t, g.Raise(t.Context(), db, "r", 0), fencing.ErrMissing)
	require.NoError(t, write(2))
	assert.Equal(t, []fencing.Token{1, 2}, st.history(t))
}

// Both holders read in a transaction before the one in which they write, as over a
// request of a user's. The one that raises first sees all that can be before it.
func testLostUpdate(t *testing.T, s *store) {
	db := s.open(t)
	g, _ := s.guard(t, db)
	st := s.state(t, db)
	read := func(token fencing.Token) []fencing.Token {
		require.NoError(t, g.Raise(t.Context(), db, "r", token))
		return st.history(t)
	}
	write := func(token fencing.Token, after []fencing.Token) error {
		return s.insist(func() error {
			return g.Do(t.Context(), db, nil, "r", token, func(ctx context.Context, tx *sql.Tx) error {
				return errors.Join(st.reset(ctx, tx, after), st.write(ctx, tx, token))
			})
		})
	}
	first := read(1) // and here it is stopped
	second := read(2)
	require.ErrorIs(t, write(1, first), fencing.ErrStale, "acknowledged, it would be lost by the next line")
	require.NoError(t, write(2, second))
	assert.Equal(t, []fencing.Token{2}, st.history(t))
}
