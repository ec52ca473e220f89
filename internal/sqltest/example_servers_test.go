//go:build unix

package sqltest_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/memory"
)

// The examples that need a server run on one.
func testExample(t *testing.T, s *store, example func(ctx context.Context, client locker.Locker, dsn string) error) {
	db := s.open(t)
	s.exec(t, db, "CREATE TABLE invoices (id BIGINT PRIMARY KEY, state VARCHAR(20) NOT NULL, total BIGINT NOT NULL)")
	s.exec(t, db, "INSERT INTO invoices VALUES (1234, 'new', 0)")
	client := locker.New(memory.New(), nil)
	defer func() { _ = client.Close() }()
	for range 2 {
		require.NoError(t, example(t.Context(), client, s.dsn(s.addr, password)))
	}
	var state string
	var total int64
	require.NoError(t, db.QueryRowContext(t.Context(), "SELECT state, total FROM invoices WHERE id = 1234").Scan(&state, &total))
	if state == "new" {
		assert.EqualValues(t, 200, total)
	} else {
		assert.Equal(t, "sent", state)
	}
	var m int64
	require.NoError(t, db.QueryRowContext(t.Context(), "SELECT token FROM locker_marks").Scan(&m))
	assert.EqualValues(t, 2, m, "the second holder's token")
}

func TestExamplePostgres(t *testing.T) { testExample(t, startPostgres(t), sendInvoice) }

func TestExampleMariaDB(t *testing.T) { testExample(t, startMariaDB(t), bookInvoice) }
