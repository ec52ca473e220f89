package sqlstore_test

import (
	"database/sql"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/cas/sqlstore"
	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/lab"
)

// A file that the kernel of this host does not lock by itself is refused, as by package file; and so is none.
func TestFilesThatCannotKeepLocks(t *testing.T) {
	remote, here := lab.MountFUSE(t), t.TempDir()
	link := filepath.Join(here, "link")
	require.NoError(t, os.Symlink(remote, link))
	for file, says := range map[string]string{
		filepath.Join(remote, "f"): "FUSE", filepath.Join(link, "f"): "FUSE", "": "memory", filepath.Join(here, "f"): "",
	} {
		db := sql.OpenDB(&database{rows: map[string]row{}, file: file})
		_, err := sqlstore.New(t.Context(), db, sqlstore.SQLite(), nil)
		require.NoError(t, db.Close())
		if says == "" {
			require.NoError(t, err)
			continue
		}
		require.ErrorContains(t, err, says, file)
		require.NotErrorIs(t, err, driver.ErrUnavailable)
	}
}
