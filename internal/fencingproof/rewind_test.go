package fencingproof_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/fencing"
	"github.com/golockers/locker/internal/lab"
)

// rewinding is an etcd that can be set back to a backup.
type rewinding struct {
	*lab.Etcd
	data, backup string
}

func startRewinding(t *testing.T) *rewinding {
	t.Helper()
	dir := t.TempDir()
	e := &rewinding{data: filepath.Join(dir, "data"), backup: filepath.Join(dir, "backup")}
	e.Etcd = lab.StartEtcd(t, 1, lab.WithConfig("data-dir", e.data)).Nodes[0]
	return e
}

func (e *rewinding) url() string { return "etcd://" + e.Addr() + "?ttl=5s" }

// save makes the backup.
func (e *rewinding) save(t *testing.T) {
	t.Helper()
	e.Kill()
	require.NoError(t, os.CopyFS(e.backup, os.DirFS(e.data)))
	e.Restart(t)
}

// restore sets etcd back to the backup.
func (e *rewinding) restore(t *testing.T) {
	t.Helper()
	e.Kill()
	require.NoError(t, os.RemoveAll(e.data))
	require.NoError(t, os.CopyFS(e.data, os.DirFS(e.backup)))
	e.Restart(t)
}

// write holds name with a client of its own, which is gone before the server
// goes, and writes to the guarded thing.
func (e *rewinding) write(t *testing.T, a *access, r *resource, name, value string, tokenBase uint64) error {
	t.Helper()
	c := open(t, e.url(), &locker.Options{TokenBase: tokenBase})
	defer func() { _ = c.Close() }()
	return hold(t, a, c, r, name, value)
}

// An etcd that is set back to a backup counts its revisions again from there.
func TestAnEtcdSetBackToABackup(t *testing.T) {
	const name = "report"
	e, r, a := startRewinding(t), startResource(t), newAccess(t)
	require.NoError(t, e.write(t, a, r, name, "before the backup", 0))
	e.save(t)
	for i := range 20 {
		require.NoError(t, e.write(t, a, r, name, fmt.Sprint("after the backup ", i), 0))
	}
	e.restore(t)
	var err error
	for range 3 {
		err = e.write(t, a, r, name, "after the restore", 0)
		mark := refused(t, a, err, r, name, "after the backup 19")
		own, _ := r.guard.Mark(name)
		assert.Equal(t, own, mark)
	}
	t.Log(err)
	mark, _ := r.guard.Mark(name)
	require.NoError(t, e.write(t, a, r, name, "with a base", uint64(mark)))
	assert.Equal(t, "with a base", a.read(r.thing(name).guarded))
}

// What fencing cannot do: a guard knows the tokens that it has seen, not those
// that were given out. A holder from before the restore that has not written
// yet has a token that is higher than those of its successors.
func TestAHolderFromBeforeTheRestoreWhoseTokenNobodyHasSeen(t *testing.T) {
	for _, far := range []bool{false, true} {
		t.Run(fmt.Sprintf("token base above all tokens given out: %t", far), func(t *testing.T) {
			const name = "report"
			e, r, a := startRewinding(t), startResource(t), newAccess(t)
			require.NoError(t, e.write(t, a, r, name, "before the backup", 0))
			e.save(t)
			for range 20 {
				require.NoError(t, e.write(t, a, r, "another", "", 0))
			}
			c := open(t, e.url(), nil)
			token, err := fencing.Of(lock(t, c, name)) // and now it is paused
			require.NoError(t, err)
			e.restore(t)

			base := uint64(0)
			if far {
				base = 1_000_000
			}
			require.NoError(t, e.write(t, a, r, name, "by its successor", base))
			mark, _ := r.guard.Mark(name)
			err = a.write(token, r.thing(name).guarded, "stale")
			if far {
				require.ErrorIs(t, err, fencing.ErrStale)
				assert.Equal(t, "by its successor", a.read(r.thing(name).guarded))
				return
			}
			assert.Greater(t, token, mark)
			require.NoError(t, err, "if it is refused now, the documentation promises too little")
			assert.Equal(t, "stale", a.read(r.thing(name).guarded))
		})
	}
}
