package fencingproof_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/fencing"
	"github.com/golockers/locker/internal/lab"
)

// hold writes to the guarded thing while it holds its lock, and returns what
// came of it.
func hold(t *testing.T, a *access, l locker.Locker, r *resource, name, value string) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	return fencing.Do(ctx, l, name, func(ctx context.Context) error {
		token, err := fencing.TokenFor(ctx, name)
		require.NoError(t, err)
		return a.to(r.thing(name).guarded).write(ctx, token, value)
	})
}

// refused sees to it that nothing was written and that the error says all that
// its reader has to know, and returns the mark.
func refused(t *testing.T, a *access, err error, r *resource, name, before string) fencing.Token {
	t.Helper()
	require.ErrorIs(t, err, fencing.ErrStale)
	var stale *fencing.StaleError
	require.ErrorAs(t, err, &stale)
	assert.Equal(t, before, a.read(r.thing(name).guarded), "nothing wrong is written")
	assert.Less(t, stale.Token, stale.Mark)
	assert.ErrorContains(t, err, "token_base", "what to do")
	assert.ErrorContains(t, err, stale.Token.String())
	assert.ErrorContains(t, err, stale.Mark.String())
	assert.ErrorContains(t, err, "set back", "a cause that is not a later holder")
	return stale.Mark
}

// The tokens of Redis are microseconds since 1970, those of etcd revisions
// and those of ZooKeeper transactions: whoever moves has to raise the lower ones.
func TestAMoveToAServiceWhoseTokensAreLower(t *testing.T) {
	redis := open(t, "redis://"+lab.StartRedis(t).Addr()+"?ttl=5s", nil)
	for name, start := range map[string]func(t *testing.T) (url string){
		"etcd": func(t *testing.T) string {
			return "etcd://" + lab.StartEtcd(t, 1).Nodes[0].Addr() + "?ttl=5s"
		},
		"zookeeper": func(t *testing.T) string { return "zookeeper://" + lab.StartZooKeeper(t).Addr() + "?ttl=5s" },
	} {
		t.Run(name, func(t *testing.T) {
			url := start(t)
			r, a := startResource(t), newAccess(t)
			require.NoError(t, hold(t, a, redis, r, name, "from redis"))

			err := hold(t, a, open(t, url, nil), r, name, "after the move")
			mark := refused(t, a, err, r, name, "from redis")
			t.Log(err)

			require.ErrorIs(t, hold(t, a, open(t, url, &locker.Options{TokenBase: 1000}), r, name,
				"too low a base"), fencing.ErrStale)
			above := uint64(mark) + 1
			for how, c := range map[string]*locker.Client{
				"Options.TokenBase": open(t, url, &locker.Options{TokenBase: above}),
				"token_base":        open(t, fmt.Sprintf("%s&token_base=%d", url, above), nil),
			} {
				require.NoError(t, hold(t, a, c, r, name, how))
				assert.Equal(t, how, a.read(r.thing(name).guarded))
			}

			// Redis's tokens rise with its clock, by a million each second: just
			// above the mark they soon meet those of clients that have not moved.
			const years = 1_000_000 * 3600 * 24 * 365
			require.NoError(t, hold(t, a, redis, r, name, "by one who has not moved"))
			require.NoError(t, hold(t, a, open(t, url, &locker.Options{TokenBase: above + 10*years}), r,
				name, "far above"))
			require.ErrorIs(t, hold(t, a, redis, r, name, "by one who has not moved"), fencing.ErrStale)
		})
	}
}
