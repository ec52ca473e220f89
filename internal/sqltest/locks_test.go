//go:build unix

package sqltest_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/cas"
	"github.com/golockers/locker/cas/castest"
	"github.com/golockers/locker/cas/sqlstore"
	"github.com/golockers/locker/conformance"
	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/lab"
)

// dialects are those of the databases that can keep locks.
func (s *store) records(t *testing.T, dsn string) *sqlstore.Store {
	t.Helper()
	d := sqlstore.SQLite()
	if s.server != nil {
		d = sqlstore.MySQL()
	}
	r, err := sqlstore.New(t.Context(), s.openDSN(t, dsn), d, nil)
	require.NoError(t, err)
	return r
}

// testStore is castest, which takes seconds.
func testStore(t *testing.T, s *store, params string) {
	h := castest.Harness{New: func(t *testing.T) cas.Store { return s.records(t, s.dsn(s.addr, password)+params) }}
	if s.server != nil {
		h.Cut = func(t *testing.T) (cas.Store, conformance.Fault) {
			p := lab.StartProxy(t, s.addr)
			return s.records(t, s.dsn(p.Addr(), password)+params), p
		}
	}
	castest.Run(t, h)
}

// kept makes the server keep what it has committed when it is killed.
const kept = "--innodb-flush-log-at-trx-commit=2"

func TestRecords(t *testing.T) {
	t.Parallel()
	for name, params := range map[string]string{
		"as it is":         "",
		"read uncommitted": "?tx_isolation=%27READ-UNCOMMITTED%27",
		"no autocommit":    "?tx_isolation=%27SERIALIZABLE%27&autocommit=0",
		"matching rows":    "?clientFoundRows=true&time_zone=%27Europe%2FBerlin%27",
		"old modes, texts": "?interpolateParams=true&sql_mode=%27ORACLE%2CANSI_QUOTES%2CNO_BACKSLASH_ESCAPES%2CEMPTY_STRING_IS_NULL%27",
	} {
		t.Run(name, func(t *testing.T) { testStore(t, startMariaDB(t, kept), params) })
	}
	for name, params := range map[string]string{"rollback journal": "", "wal": "_pragma=journal_mode(wal)&_pragma=busy_timeout(10000)"} {
		t.Run(name, func(t *testing.T) { testStore(t, openSQLite(t, name, params), "") })
	}
}

var _ = context.Background
var _ driver.Backend
var _ = time.Second
