package sqlstore_test

import (
	"database/sql"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/golockers/locker"
	"github.com/golockers/locker/cas"
	"github.com/golockers/locker/cas/castest"
	"github.com/golockers/locker/cas/sqlstore"
	"github.com/golockers/locker/driver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// On connections that commit each statement, and on those of an application that do not.
func TestStore(t *testing.T) {
	for name, off := range map[string]bool{"commits": false, "does not commit": true} {
		t.Run(name, func(t *testing.T) {
			d := &database{off: off, rows: map[string]row{}}
			castest.Run(t, castest.Harness{New: func(t *testing.T) cas.Store { return d.store(t, dialect()) }})
		})
	}
}

// What an error says of the write, and whether the statement is repeated. Without the database's numbers nothing is
// known of an error.
func TestWhatAnErrorMeans(t *testing.T) {
	d, without := &database{rows: map[string]row{}}, dialect()
	without.Code = nil
	s := d.store(t, dialect())
	version, err := s.Swap(t.Context(), "a", "", []byte("first"))
	require.NoError(t, err)
	for name, c := range map[string]struct {
		store                       *sqlstore.Store
		faults                      []fault
		written, unwritten, refused bool
	}{
		"undone or closed, and repeated": {s, []fault{{number: 1213}, {number: 1205}, {number: 1020}, {closed: true}}, true, false, false},
		"sent twice by a proxy":          {s, []fault{{twice: true}}, true, false, false},
		"read only":                      {s, []fault{{number: 1290}}, false, true, false},
		"no right":                       {s, []fault{{number: 1142}}, false, true, true},
		"killed, so nobody knows":        {s, []fault{{number: 1927}}, false, false, false},
		"undone, but nobody knows":       {d.store(t, without), []fault{{number: 1213}}, false, false, false},
	} {
		d.fails(c.faults...)
		next, err := c.store.Swap(t.Context(), "a", version, []byte(name))
		require.Equal(t, c.written, err == nil, "%s: %v", name, err)
		if c.written {
			version = next
		}
		require.NotErrorIs(t, err, cas.ErrConflict, name)
		require.Equal(t, c.unwritten, errors.Is(err, cas.ErrUnwritten), name)
		require.Equal(t, c.refused, errors.Is(err, driver.ErrRefused), name)
	}
}

// docs/costs.md has these.
func TestRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &database{rows: map[string]row{}}
		client := func() *locker.Client {
			b, err := cas.New(d.store(t, dialect()), nil)
			require.NoError(t, err)
			c, err := locker.New(b, nil)
			require.NoError(t, err)
			t.Cleanup(func() { _ = c.Close() })
			return c
		}
		a, b := client(), client()
		d.fails()
		lock := func() *locker.Lease {
			l, err := a.Lock(t.Context(), "a")
			require.NoError(t, err)
			return l
		}
		l := lock()
		assert.Equal(t, "SELECT MAKE UPDATE", d.fails(), "the first lock of a name")
		require.NoError(t, l.Unlock(t.Context()))
		assert.Equal(t, "UPDATE", d.fails(), "a release")
		l = lock()
		assert.Equal(t, "SELECT UPDATE", d.fails(), "a lock")
		require.NoError(t, l.Renew(t.Context()))
		assert.Equal(t, "UPDATE", d.fails(), "a renewal")
		_, err := b.TryLock(t.Context(), "a")
		require.ErrorIs(t, err, locker.ErrHeld)
		assert.Equal(t, "SELECT", d.fails(), "a refusal")
		_, err = b.Lock(t.Context(), "a", locker.MaxWait(20*time.Second))
		require.ErrorIs(t, err, locker.ErrHeld)
		polls := d.fails()
		assert.InDelta(t, 40, strings.Count(polls, "SELECT"), 10, "a wait: twice a second")
		assert.InDelta(t, 2, strings.Count(polls, "UPDATE"), 1, "and the holder's renewals")
		// Of an application without autocommit.
		d.off = true
		off := client()
		other, err := off.Lock(t.Context(), "b")
		require.NoError(t, err)
		d.fails()
		require.NoError(t, other.Renew(t.Context()))
		assert.Equal(t, "UPDATE SELECT SET UPDATE SET", d.fails(), "and autocommit is off again")
	})
}

// A table's name becomes part of every statement: nothing but a name may pass.
func TestTableIsAnIdentifier(t *testing.T) {
	db := sql.OpenDB(&database{rows: map[string]row{}})
	defer func() { _ = db.Close() }()
	for name, good := range map[string]bool{"": true, "locks.Order": true, "a b": false, "a;": false, "a`": false, "a.b.c": false, "1a": false} {
		_, err := sqlstore.New(t.Context(), db, dialect(), &sqlstore.Options{Table: name})
		assert.Equal(t, !good, errors.Is(err, driver.ErrInvalid), "%s: %v", name, err)
	}
}
