package sqlstore_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/golockers/locker"
	"github.com/golockers/locker/cas"
	"github.com/golockers/locker/cas/castest"
	"github.com/golockers/locker/cas/sqlstore"
	"github.com/golockers/locker/conformance"
	"github.com/golockers/locker/driver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// On connections that commit each statement, and on those of an application that do not.
func TestStore(t *testing.T) {
	for _, begin := range []string{"", "SET autocommit = 0"} {
		t.Run(begin, func(t *testing.T) {
			t.Parallel()
			d := startDatabase(t)
			castest.Run(t, castest.Harness{
				New: func(t *testing.T) cas.Store { return d.store(t, d.addr, begin) },
				Cut: func(t *testing.T) (cas.Store, conformance.Fault) {
					addr, fault := conformance.Proxy(t, d.addr)
					return d.store(t, addr, begin), fault
				},
			})
		})
	}
}

// What an error says of the write, and whether the statement is repeated.
func TestWhatAnErrorMeans(t *testing.T) {
	d := startDatabase(t)
	s := d.store(t, d.addr, "")
	version, err := s.Swap(t.Context(), "a", "", []byte("first"))
	require.NoError(t, err)
	deadlock, snapshot, timeout := fault{number: 1213}, fault{number: 1020}, fault{number: 1205}
	for name, c := range map[string]struct {
		faults []fault
		is     []error
		not    error
	}{
		"undone, and repeated":  {[]fault{deadlock, timeout, snapshot}, nil, nil},
		"sent twice by a proxy": {[]fault{{twice: true}}, nil, nil},
		"read only":             {[]fault{{number: 1290}}, []error{cas.ErrUnwritten}, driver.ErrRefused},
		"no right":              {[]fault{{number: 1142}}, []error{cas.ErrUnwritten, driver.ErrRefused}, nil},
		"connection killed":     {[]fault{{number: 1927}}, nil, cas.ErrUnwritten},
		"connection closed":     {[]fault{{closes: true}}, nil, cas.ErrUnwritten},
	} {
		d.fails("UPDATE", c.faults...)
		next, err := s.Swap(t.Context(), "a", version, []byte(name))
		if c.is == nil && c.not == nil {
			require.NoError(t, err, name)
			version = next
			continue
		}
		require.Error(t, err, name)
		for _, is := range c.is {
			require.ErrorIs(t, err, is, name)
		}
		require.NotErrorIs(t, err, cas.ErrConflict, name)
		if c.not != nil {
			require.NotErrorIs(t, err, c.not, name)
		}
	}
	d.fails("UPDATE")
	_, err = sqlstore.New(t.Context(), d.open(t, "127.0.0.1:1", ""), dialect(), nil)
	require.ErrorIs(t, err, cas.ErrUnwritten, "nobody there")
}

// The application's connections are as they were: autocommit is off again, or the connection closed.
func TestAutocommitIsOffAgain(t *testing.T) {
	d := startDatabase(t)
	s := d.store(t, d.addr, "SET autocommit = 0")
	swap := func(version string) string {
		version, err := s.Swap(t.Context(), "a", version, []byte("it"))
		require.NoError(t, err)
		return version
	}
	version := swap("")
	d.fails("")
	version = swap(version)
	assert.Equal(t, []string{"UPDATE", "SELECT", "SET", "UPDATE", "SET"}, d.statements())
	d.fails("SET autocommit = 0", fault{number: 1205})
	version = swap(version)
	d.fails("")
	swap(version)
	assert.Equal(t, "SET", d.statements()[0], "of a new connection")
}

// docs/costs.md has these.
func TestRequests(t *testing.T) {
	d := startDatabase(t)
	client := func() *locker.Client {
		b, err := cas.New(d.store(t, d.addr, ""), nil)
		require.NoError(t, err)
		c, err := locker.New(b, nil)
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	a, b := client(), client()
	count := func(what, want string) {
		assert.Equal(t, want, strings.Join(d.statements(), " "), what)
		d.fails("")
	}
	d.fails("")
	lock := func() *locker.Lease {
		l, err := a.Lock(t.Context(), "a")
		require.NoError(t, err)
		return l
	}
	l := lock()
	count("the first lock of a name", "SELECT MAKE UPDATE")
	require.NoError(t, l.Unlock(t.Context()))
	count("a release", "UPDATE")
	l = lock()
	count("a lock", "SELECT UPDATE")
	require.NoError(t, l.Renew(t.Context()))
	count("a renewal", "UPDATE")
	_, err := b.TryLock(t.Context(), "a")
	require.ErrorIs(t, err, locker.ErrHeld)
	count("a refusal", "SELECT")
	_, err = b.Lock(t.Context(), "a", locker.MaxWait(2*time.Second))
	require.ErrorIs(t, err, locker.ErrHeld)
	polls := d.statements()
	assert.Equal(t, []string{"SELECT"}, slices.Compact(slices.Clone(polls)), "a wait reads")
	assert.InDelta(t, 5, len(polls), 2, "twice a second, and once at first")
}

// A table's name becomes part of every statement: nothing but a name may pass.
func TestTableIsAnIdentifier(t *testing.T) {
	d := startDatabase(t)
	for name, good := range map[string]bool{"": true, "locks.Order": true, "a b": false, "a;": false, "a`": false, "a.b.c": false, "1a": false} {
		_, err := sqlstore.New(t.Context(), d.open(t, d.addr, ""), dialect(), &sqlstore.Options{Table: name})
		assert.Equal(t, good, err == nil, "%s: %v", name, err)
		if !good {
			assert.ErrorIs(t, err, driver.ErrInvalid)
		}
	}
}
