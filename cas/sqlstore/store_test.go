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
	for _, begin := range []string{"", "SET autocommit = 0"} {
		t.Run(begin, func(t *testing.T) {
			d := &database{begin: begin, rows: map[string]row{}}
			castest.Run(t, castest.Harness{New: func(t *testing.T) cas.Store { return d.store(t) }})
		})
	}
}

// What an error says of the write, and whether the statement is repeated.
func TestWhatAnErrorMeans(t *testing.T) {
	d := &database{rows: map[string]row{}}
	s := d.store(t)
	version, err := s.Swap(t.Context(), "a", "", []byte("first"))
	require.NoError(t, err)
	for name, c := range map[string]struct {
		faults             []fault
		unwritten, refused bool
	}{
		"undone or closed, and repeated": {faults: []fault{{number: 1213}, {number: 1205}, {number: 1020}, {closed: true}}},
		"sent twice by a proxy":          {faults: []fault{{twice: true}}},
		"read only":                      {[]fault{{number: 1290}}, true, false},
		"no right":                       {[]fault{{number: 1142}}, true, true},
		"killed, so nobody knows":        {[]fault{{number: 1927}}, false, false},
	} {
		d.fails(c.faults...)
		next, err := s.Swap(t.Context(), "a", version, []byte(name))
		if len(c.faults) > 1 || c.faults[0].twice {
			require.NoError(t, err, name)
			version = next
			continue
		}
		require.Error(t, err, name)
		require.NotErrorIs(t, err, cas.ErrConflict, name)
		require.Equal(t, c.unwritten, errors.Is(err, cas.ErrUnwritten), name)
		require.Equal(t, c.refused, errors.Is(err, driver.ErrRefused), name)
	}
}

// Without the database's numbers, nothing is known of an error.
func TestADialectWithoutNumbers(t *testing.T) {
	d := &database{rows: map[string]row{}}
	without := dialect()
	without.Code = nil
	db := sql.OpenDB(d)
	defer func() { _ = db.Close() }()
	s, err := sqlstore.New(t.Context(), db, without, nil)
	require.NoError(t, err)
	version, err := s.Swap(t.Context(), "a", "", []byte("first"))
	require.NoError(t, err)
	d.fails(fault{number: 1213})
	_, err = s.Swap(t.Context(), "a", version, []byte("next"))
	require.Error(t, err)
	require.NotErrorIs(t, err, cas.ErrUnwritten)
}

// docs/costs.md has these.
func TestRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &database{rows: map[string]row{}}
		client := func() *locker.Client {
			b, err := cas.New(d.store(t), nil)
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
		d.begin = "SET autocommit = 0"
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
