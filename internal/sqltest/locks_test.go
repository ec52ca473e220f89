//go:build unix

package sqltest_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"fmt"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/cas"
	"github.com/golockers/locker/cas/castest"
	"github.com/golockers/locker/cas/sqlstore"
	"github.com/golockers/locker/conformance"
	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/campaign"
	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/internal/sqlstate"
)

// openRecords returns the locks in a file; with these parameters a database that meets another waits for it, or not.
func openRecords(ctx context.Context, file, params string) (*sqlstore.Store, *sql.DB, error) {
	db, err := sql.Open("sqlite", fmt.Sprintf("file:%s?_pragma=synchronous(off)%s", file, params))
	if err != nil {
		return nil, nil, err
	}
	db.SetMaxOpenConns(4) // one writes at a time
	s, err := sqlstore.New(ctx, db, sqlstore.SQLite(), nil)
	return s, db, err
}

const patient = "&_pragma=journal_mode(wal)&_pragma=busy_timeout(200)"

func records(t conformance.T, file, params string) (*sqlstore.Store, *sql.DB) {
	s, db, err := openRecords(t.Context(), file, params)
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return s, db
}

func backendOn(s *sqlstore.Store) driver.Backend { b, _ := cas.New(s, nil); return b }

// holdRecord is a child that takes a lock, and holds it until it is killed.
func holdRecord(p *lab.Parent) {
	ttl, err := time.ParseDuration(p.Args[2])
	if err == nil {
		var s *sqlstore.Store
		if s, _, err = openRecords(context.Background(), p.Args[0], patient); err == nil {
			_, err = backendOn(s).Acquire(context.Background(), driver.Request{Name: p.Args[1], TTL: ttl, Owner: rand.Text()})
		}
	}
	p.Say("holding %v", err)
	p.Hear()
}

// By itself: the suite looks for goroutines that are left.
func TestLocksInSQLite(t *testing.T) {
	for name, params := range map[string]string{"waits": patient, "does not wait": ""} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			castest.Run(t, castest.Harness{New: func(t *testing.T) cas.Store {
				s, _ := records(t, filepath.Join(dir, "castest.db"), params)
				return s
			}})
			file := filepath.Join(dir, "locks.db")
			conformance.Run(t, conformance.Harness{
				TTL: 500 * time.Millisecond,
				New: func(t conformance.T) driver.Backend { s, _ := records(t, file, params); return backendOn(s) },
				Pair: func(t conformance.T) (a, b driver.Backend) {
					s, _ := records(t, file, params)
					return backendOn(s), backendOn(s)
				},
				Delete: func(t conformance.T, name string) {
					_, db, err := openRecords(t.Context(), file, params+"&_pragma=busy_timeout(10000)")
					require.NoError(t, err)
					_, err = db.Exec("DELETE FROM locker_records WHERE name = ?", []byte(name))
					require.NoError(t, err)
					require.NoError(t, db.Close()) // a pool that stays would look like a client's
				},
				Victim: func(_ conformance.T, name string, ttl time.Duration) func() {
					child := lab.StartChild(t, "holdRecord", file, name, ttl.String())
					child.Expect(t, "holding <nil>", time.Minute)
					return child.Kill
				},
				Unproven: map[string]string{"many-sharers": "each that comes writes the record of all, and collides with others"},
			})
		})
	}
}

// Readers and writers of many names, in one file.
func TestACampaignInSQLite(t *testing.T) {
	file, clients := filepath.Join(t.TempDir(), "locks.db"), []*locker.Client(nil)
	for range 6 {
		s, _ := records(t, file, patient)
		c, err := locker.New(backendOn(s), &locker.Options{TTL: campaign.TTL})
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close() })
		clients = append(clients, c)
	}
	c := campaign.Begin(t, campaign.Names(16), true, 8, clients...)
	c.GoesOn(500, 2*time.Minute)
	overlaps, together := c.End(clients[0])
	assert.Empty(t, overlaps)
	assert.Positive(t, together)
}

// No connection sees the database of another in memory, its temporary tables, or what it has attached.
func TestTablesThatCannotKeepLocks(t *testing.T) {
	_, db := records(t, filepath.Join(t.TempDir(), "locks.db"), patient)
	for _, table := range []string{"temp.locks", "TEMP.locks", "other.locks"} {
		_, err := sqlstore.New(t.Context(), db, sqlstore.SQLite(), &sqlstore.Options{Table: table})
		require.ErrorIs(t, err, driver.ErrInvalid, table)
	}
	_, db, err := openRecords(t.Context(), ":memory:", "")
	require.ErrorIs(t, err, driver.ErrInvalid)
	require.NoError(t, db.Close())
}

// A user adds a database that the package does not know.
func TestADialectOfAUser(t *testing.T) {
	t.Parallel()
	s := startPostgres(t)
	number := func(state string) int64 { n, _ := strconv.ParseInt(state, 36, 64); return n } // it has letters
	dialect := sqlstore.Dialect{
		Promises: cas.Promises{Backend: "postgres", Ages: true},
		Create: `CREATE TABLE IF NOT EXISTS TABLE_NAME (name bytea PRIMARY KEY, version bytea NOT NULL, ` +
			`written timestamptz NOT NULL, value bytea NOT NULL)`,
		Make:    `INSERT INTO TABLE_NAME (name, version, written, value) VALUES ($1, '-', NOW, '-') ON CONFLICT DO NOTHING`,
		Now:     `clock_timestamp()`,
		Age:     `(extract(epoch FROM NOW - r.written) * 1000000)::bigint`,
		Commits: "1", Quote: `"`, Placeholder: s.number,
		Code:  func(err error) int64 { return number(sqlstate.Of(err)) },
		Again: []int64{number("40001")}, Refused: []int64{number(sqlstate.NoTable)},
	}
	castest.Run(t, castest.Harness{
		New: func(t *testing.T) cas.Store {
			store, err := sqlstore.New(t.Context(), s.open(t), dialect, &sqlstore.Options{Table: "public.Order"})
			require.NoError(t, err)
			return store
		},
	})
}
