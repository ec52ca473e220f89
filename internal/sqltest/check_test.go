//go:build unix

package sqltest_test

import (
	"context"
	"database/sql"
	"errors"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/fencing"
	"github.com/golockers/locker/internal/guardtest"
	"github.com/golockers/locker/internal/lab"
)

// testSuite is what every guard has to pass, at the level at which transactions meet the most.
func testSuite(t *testing.T, s *store) {
	first := s.open(t)
	g, _ := s.guard(t, first)
	values := table("values_of")
	s.exec(t, first,
		"CREATE TABLE "+values+" (name VARCHAR(40) NOT NULL PRIMARY KEY, value VARCHAR(40) NOT NULL)")
	store := func(t *testing.T, addr string) guardtest.Store {
		dsn := s.dsn(addr, password)
		if s.strict != nil {
			dsn = s.strict(dsn)
		}
		db := s.openDSN(t, dsn)
		return guardtest.Store{
			Write: func(ctx context.Context, r string, token fencing.Token, value string) error {
				return g.Do(ctx, db, nil, r, token, func(ctx context.Context, tx *sql.Tx) error {
					if _, err := tx.ExecContext(ctx, "DELETE FROM "+values+" WHERE name = "+s.number(1),
						r); err != nil {
						return err
					}
					_, err := tx.ExecContext(ctx,
						"INSERT INTO "+values+" VALUES ("+s.number(1)+", "+s.number(2)+")", r, value)
					return err
				})
			},
			Raise: func(ctx context.Context, r string, token fencing.Token) error {
				return g.Raise(ctx, db, r, token)
			},
			Forget: func(ctx context.Context, r string) error {
				tx, err := db.BeginTx(ctx, nil)
				if err != nil {
					return err
				}
				return errors.Join(g.Forget(ctx, tx, r), tx.Commit())
			},
			AnyName: true,
			Read: func(ctx context.Context, r string) (value string, err error) {
				err = db.QueryRowContext(ctx, "SELECT value FROM "+values+" WHERE name = "+s.number(1),
					r).Scan(&value)
				if errors.Is(err, sql.ErrNoRows) {
					err = nil
				}
				return value, err
			},
			Mark: func(ctx context.Context, r string) (fencing.Token, error) {
				mark, _, err := g.Mark(ctx, db, r)
				return mark, err
			},
			Again:    s.again,
			MaxToken: math.MaxInt64,
		}
	}
	guardtest.Run(t, func(t *testing.T) guardtest.Store { return store(t, s.addr) })
	if s.server != nil {
		p := lab.StartProxy(t, s.addr)
		through, direct := store(t, p.Addr()), store(t, s.addr)
		through.Read = func(ctx context.Context, r string) (value string, err error) {
			for { // at this level, a mere read may have to be repeated
				if value, err = direct.Read(ctx, r); err == nil || !s.again(err) {
					return value, err
				}
			}
		}
		guardtest.Broken(t, guardtest.Proxied{Store: through, Proxy: p, Later: direct.Write})
	}
}

// refusals are the ways in which Check can say no.
func refusals(ctx context.Context) map[string]struct {
	ctx      context.Context
	resource string
	token    fencing.Token
	want     error
} {
	over, cancel := context.WithCancel(ctx)
	cancel()
	type refusal = struct {
		ctx      context.Context
		resource string
		token    fencing.Token
		want     error
	}
	return map[string]refusal{
		"stale":     {ctx, "r", 9, fencing.ErrStale},
		"missing":   {ctx, "r", 0, fencing.ErrMissing},
		"too large": {ctx, "r", math.MaxInt64 + 1, locker.ErrInvalid},
		"largest":   {ctx, "r", math.MaxUint64, locker.ErrInvalid},
		"no name":   {ctx, "", 11, locker.ErrInvalid},
		"cancelled": {over, "r", 11, context.Canceled},
	}
}

// A transaction that was refused cannot be committed, whatever its owner does
// with the error.
func testRefused(t *testing.T, s *store) {
	db := s.open(t)
	g, _ := s.guard(t, db)
	st := s.state(t, db)
	require.NoError(t, s.check(t, g, db, "r", 10))
	for name, r := range refusals(t.Context()) {
		t.Run(name, func(t *testing.T) {
			tx, err := db.BeginTx(t.Context(), nil)
			require.NoError(t, err)
			require.NoError(t, st.write(t.Context(), tx, 9))
			err = g.Check(r.ctx, tx, r.resource, r.token)
			require.ErrorIs(t, err, r.want)
			assert.NotContains(t, err.Error(), "\n")
			require.ErrorIs(t, st.write(t.Context(), tx, 9), sql.ErrTxDone)
			require.ErrorIs(t, tx.Commit(), sql.ErrTxDone)
			assert.Empty(t, st.history(t), "the write before the refusal is undone")
			assert.EqualValues(t, 10, mark(t, g, db, "r"))

			called := false
			err = g.Do(r.ctx, db, nil, r.resource, r.token,
				func(context.Context, *sql.Tx) error { called = true; return nil })
			require.ErrorIs(t, err, r.want)
			assert.False(t, called)
		})
	}
	t.Run("says what is too large", func(t *testing.T) {
		err := s.check(t, g, db, "r", math.MaxInt64+1)
		require.ErrorContains(t, err,
			"9223372036854775808 is more than a signed 64-bit column can hold, which is 9223372036854775807")
	})
	// The refusals have left nothing locked.
	require.NoError(t, s.check(t, g, db, "r", 11))
}

// The mark moves with the write or not at all.
func testTogether(t *testing.T, s *store) {
	db := s.open(t)
	g, _ := s.guard(t, db)
	st := s.state(t, db)
	own := errors.New("changed my mind")

	tx, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	require.NoError(t, g.Check(t.Context(), tx, "r", 7))
	require.NoError(t, st.write(t.Context(), tx, 7))
	require.NoError(t, tx.Rollback())
	assert.Zero(t, mark(t, g, db, "r"))
	assert.Empty(t, st.history(t))

	err = g.Do(t.Context(), db, nil, "r", 7, func(ctx context.Context, tx *sql.Tx) error {
		return errors.Join(st.write(ctx, tx, 7), own)
	})
	require.ErrorIs(t, err, own)
	assert.Zero(t, mark(t, g, db, "r"))
	assert.Empty(t, st.history(t))

	err = g.Do(t.Context(), db, nil, "r", 5,
		func(ctx context.Context, tx *sql.Tx) error { return st.write(ctx, tx, 5) })
	require.NoError(t, err, "the 7 was never committed")
	assert.EqualValues(t, 5, mark(t, g, db, "r"))
	assert.Equal(t, []fencing.Token{5}, st.history(t))

	// Also a mark that was there stays where it was.
	err = g.Do(t.Context(), db, nil, "r", 8, func(ctx context.Context, tx *sql.Tx) error {
		return errors.Join(st.write(ctx, tx, 8), own)
	})
	require.ErrorIs(t, err, own)
	assert.EqualValues(t, 5, mark(t, g, db, "r"))

	// One transaction may check more than once, and more than one.
	err = g.Do(t.Context(), db, nil, "r", 8, func(ctx context.Context, tx *sql.Tx) error {
		return errors.Join(g.Check(ctx, tx, "r", 8), g.Check(ctx, tx, "r2", 3), st.write(ctx, tx, 8))
	})
	require.NoError(t, err)
	assert.EqualValues(t, 8, mark(t, g, db, "r"))
	assert.EqualValues(t, 3, mark(t, g, db, "r2"))

	err = g.Do(t.Context(), db, nil, "r", 9, func(ctx context.Context, tx *sql.Tx) error {
		_ = g.Check(ctx, tx, "r2", 2) // refused, and nobody looks
		return nil
	})
	require.ErrorIs(t, err, sql.ErrTxDone)
	assert.EqualValues(t, 8, mark(t, g, db, "r"))
}

func testPanic(t *testing.T, s *store) {
	db := s.open(t)
	g, _ := s.guard(t, db)
	st := s.state(t, db)
	require.PanicsWithValue(t, "on purpose", func() {
		_ = g.Do(t.Context(), db, nil, "r", 7, func(ctx context.Context, tx *sql.Tx) error {
			if err := st.write(ctx, tx, 7); err != nil {
				return err
			}
			panic("on purpose")
		})
	})
	assert.Zero(t, mark(t, g, db, "r"))
	assert.Empty(t, st.history(t))
	require.NoError(t, s.check(t, g, db, "r", 1), "nothing is left locked")
}
