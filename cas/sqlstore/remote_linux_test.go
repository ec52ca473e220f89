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

// A file that the kernel of this host does not lock by itself is refused, as by package file.
func TestFilesOfOtherHosts(t *testing.T) {
	remote, link := lab.MountFUSE(t), filepath.Join(t.TempDir(), "link")
	require.NoError(t, os.Symlink(remote, link))
	for _, dir := range []string{remote, link} {
		db := sql.OpenDB(&database{rows: map[string]row{}, file: filepath.Join(dir, "f")})
		_, err := sqlstore.New(t.Context(), db, sqlstore.SQLite(), nil)
		require.NoError(t, db.Close())
		require.ErrorIs(t, err, driver.ErrInvalid)
		require.ErrorContains(t, err, "FUSE")
	}
}
