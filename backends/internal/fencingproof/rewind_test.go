package fencingproof_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/fencing"
	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/internal/locktest"
)

const report = "report"

// hold writes the guarded report while it holds the lock with a client of its own, which is gone before its server is.
func hold(t *testing.T, url string, r *resource, value string, tokenBase uint64) error {
	t.Helper()
	c := open(t, url, &locker.Options{TokenBase: tokenBase})
	defer func() { _ = c.Close() }()
	err := fencing.Do(locktest.Within(t, patience), c, report, func(ctx context.Context) error {
		token, err := fencing.TokenFor(ctx, report)
		require.NoError(t, err)
		return r.write(t, report, token, value)
	})
	if err == nil {
		assert.Equal(t, value, r.get("/guarded/"+report))
	}
	return err
}

// refused checks that nothing was written and that the error says all that its reader has to know, and returns the mark.
func refused(t *testing.T, err error, r *resource, before string) uint64 {
	t.Helper()
	var stale *fencing.StaleError
	require.ErrorAs(t, err, &stale)
	assert.Equal(t, before, r.get("/guarded/"+report), "nothing wrong is written")
	for _, text := range []string{"token_base", stale.Token.String(), stale.Mark.String(), "set back"} {
		assert.ErrorContains(t, err, text, "what to do, and a cause that is not a later holder")
	}
	return uint64(stale.Mark)
}

// The tokens of Redis are microseconds since 1970, those of etcd revisions and those of ZooKeeper transactions: who
// moves has to raise the lower ones.
func TestAMoveToAServiceWhoseTokensAreLower(t *testing.T) {
	redis := "redis://" + lab.StartRedis(t).Addr() + "?ttl=5s"
	for _, url := range []string{"etcd://" + lab.StartEtcd(t, 1).Nodes[0].Addr() + "?ttl=5s",
		"zookeeper://" + lab.StartZooKeeper(t).Addr() + "?ttl=5s"} {
		r := startResource(t)
		require.NoError(t, hold(t, redis, r, "from redis", 0))
		mark := refused(t, hold(t, url, r, "after the move", 0), r, "from redis")
		require.ErrorIs(t, hold(t, url, r, "too low a base", 1000), fencing.ErrStale)
		require.NoError(t, hold(t, url, r, "Options.TokenBase", mark+1))
		require.NoError(t, hold(t, fmt.Sprintf("%s&token_base=%d", url, mark+1), r, "token_base", 0))

		// Redis's tokens rise with its clock, by a million each second: just above the mark they soon meet those of
		// clients that have not moved.
		const years = 1_000_000 * 3600 * 24 * 365
		require.NoError(t, hold(t, redis, r, "not moved", 0))
		require.NoError(t, hold(t, url, r, "far above", mark+10*years))
		require.ErrorIs(t, hold(t, redis, r, "not moved", 0), fencing.ErrStale)
	}
}

// rewinding is an etcd that can be set back to a backup.
type rewinding struct {
	*lab.Etcd
	data, backup, url string
}

func startRewinding(t *testing.T) *rewinding {
	t.Helper()
	dir := t.TempDir()
	e := &rewinding{data: filepath.Join(dir, "data"), backup: filepath.Join(dir, "backup")}
	e.Etcd = lab.StartEtcd(t, 1, lab.WithConfig("data-dir", e.data)).Nodes[0]
	e.url = "etcd://" + e.Addr() + "?ttl=5s"
	return e
}

// copyData copies the data to a backup, or back.
func (e *rewinding) copyData(t *testing.T, from, to string) {
	t.Helper()
	e.Kill()
	require.NoError(t, os.RemoveAll(to))
	require.NoError(t, os.CopyFS(to, os.DirFS(from)))
	e.Restart(t)
}

// An etcd that is set back to a backup counts its revisions again from there, and its holders are refused until they
// have a base. What fencing cannot do: a guard knows the tokens that it has seen, not those that were given out. A
// holder from before the restoration that has not written yet has a higher token than its successors.
func TestAnEtcdSetBackToABackup(t *testing.T) {
	for _, base := range []uint64{0, 1_000_000} { // above all that were given out
		e, r := startRewinding(t), startResource(t)
		require.NoError(t, hold(t, e.url, r, "before the backup", 0))
		e.copyData(t, e.data, e.backup)
		for i := range 20 {
			require.NoError(t, hold(t, e.url, r, fmt.Sprint("after the backup ", i), 0))
		}
		_, token := lock(t, open(t, e.url, nil), report) // and now it is paused
		e.copyData(t, e.backup, e.data)
		mark := refused(t, hold(t, e.url, r, "after the restoration", 0), r, "after the backup 19")
		require.NoError(t, hold(t, e.url, r, "by its successor", max(base, mark)))

		r.guard.Forget(report) // as if nobody had written since the backup
		require.NoError(t, hold(t, e.url, r, "by its successor", base))
		err := r.write(t, report, token, "late")
		if base == 0 {
			require.NoError(t, err, "if it is refused now, the documentation promises too little")
		} else {
			require.ErrorIs(t, err, fencing.ErrStale)
		}
	}
}
