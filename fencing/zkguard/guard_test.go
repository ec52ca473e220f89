package zkguard_test

import (
	"strings"
	"sync"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/fencing"
	"github.com/golockers/locker/fencing/zkguard"
)

// A mark that moved although nothing was written would refuse an earlier
// holder for nothing; a write without the mark would let one pass.
func TestMarkMovesWithAWriteOrNotAtAll(t *testing.T) {
	s := newScene(t)
	ctx := within(t, soon)
	put(t, s.admin, "/data", "old")
	put(t, s.admin, "/other", "old")
	put(t, s.admin, "/full", "")
	put(t, s.admin, "/full/child", "")
	world := zk.WorldACL(zk.PermAll)
	for _, marked := range []fencing.Token{0, 5} { // with a mark that is not there, and with one that is
		if marked != 0 {
			_, err := s.guard.Multi(ctx, "r", marked)
			require.NoError(t, err)
		}
		for _, token := range []fencing.Token{max(marked, 1), marked + 1} { // the same holder, and the next
			for cause, op := range map[error]any{
				zk.ErrBadVersion: &zk.SetDataRequest{Path: "/data", Version: 77},
				zk.ErrNodeExists: &zk.CreateRequest{Path: "/other", Acl: world},
				zk.ErrNoNode:     &zk.DeleteRequest{Path: "/none", Version: -1},
				zk.ErrNotEmpty:   &zk.DeleteRequest{Path: "/full", Version: -1},
				zk.ErrInvalidACL: &zk.CreateRequest{Path: "/new"},
			} {
				results, err := s.guard.Multi(ctx, "r", token, set("/data", "new"), op, set("/other", "new"))
				require.ErrorIs(t, err, cause)
				var failed *zkguard.OpError
				require.ErrorAs(t, err, &failed)
				assert.Equal(t, 1, failed.Index)
				assert.Same(t, op, failed.Op)
				assert.Equal(t, "r", failed.Resource)
				assert.NotContains(t, err.Error(), "\n")
				require.NotErrorIs(t, err, fencing.ErrUnknown)
				require.NotErrorIs(t, err, locker.ErrUnavailable)
				require.Len(t, results, 3)
				require.NoError(t, results[0].Error)
				require.ErrorIs(t, results[1].Error, cause)
				data, _ := look(t, s.admin, "/data")
				assert.Equal(t, "old", data)
				mark, err := s.guard.Mark(ctx, "r")
				require.NoError(t, err)
				assert.Equal(t, marked, mark)
			}
		}
	}
	results, err := s.guard.Multi(ctx, "r", 6, &zk.CreateRequest{Path: "/new-", Acl: world,
		Flags: zk.FlagSequence}, set("/data", "new"))
	require.NoError(t, err)
	assert.True(t, strings.HasPrefix(results[0].String, "/new-0"), results[0].String)
}

// All find no mark, and one of them makes it.
func TestManyMakeTheMark(t *testing.T) {
	s := newScene(t)
	put(t, s.admin, "/data", "")
	for round := range 5 {
		resource := strings.Repeat("r", round+1)
		var wg sync.WaitGroup
		for i := range 8 {
			g := newGuard(t, connect(t, s.server.Addr()), nil)
			wg.Go(func() {
				token := fencing.Token(i%4 + 1)
				_, err := g.Multi(within(t, soon), resource, token, set("/data", token.String()))
				if err != nil {
					assert.ErrorIs(t, err, fencing.ErrStale)
					assert.Less(t, token, fencing.Token(4))
				}
			})
		}
		wg.Wait()
		mark, err := s.guard.Mark(within(t, soon), resource)
		require.NoError(t, err)
		assert.EqualValues(t, 4, mark)
		data, _ := look(t, s.admin, "/data")
		assert.Equal(t, "4", data)
	}
}

func TestBadInputIsToldAtOnce(t *testing.T) {
	s := newScene(t)
	ctx := within(t, soon)
	multi := func(ops ...any) func() error {
		return func() error { _, err := s.guard.Multi(ctx, "r", 1, ops...); return err }
	}
	prefix := func(p string) func() error {
		return func() error { _, err := zkguard.New(s.admin, &zkguard.Options{Prefix: p}); return err }
	}
	for what, call := range map[string]func() error{
		"nil":            multi(nil),
		"nil operation":  multi((*zk.SetDataRequest)(nil)),
		"no pointer":     multi(zk.SetDataRequest{Path: "/data"}),
		"no operation":   multi("/data"),
		"no path":        multi(&zk.SetDataRequest{}),
		"its own mark":   multi(set("/fencing/1/mark/r", "1")),
		"another's mark": multi(&zk.DeleteRequest{Path: "/fencing/1/mark/q"}),
		"a new mark":     multi(&zk.CreateRequest{Path: "/fencing/1/mark/q"}),
		"all marks":      multi(&zk.DeleteRequest{Path: "/fencing/1"}),
		"no connection":  func() error { _, err := zkguard.New(nil, nil); return err },
		"root":           prefix("/"),
		"no slash":       prefix("a"),
		"slash at end":   prefix("/a/"),
		"two slashes":    prefix("/a//b"),
		"up":             prefix("/a/../b"),
		"control":        prefix("/a\x00"),
		"long prefix":    prefix("/" + strings.Repeat("a", 300)),
		"the service's":  prefix("/zookeeper/x"),
	} {
		err := call()
		require.ErrorIs(t, err, locker.ErrInvalid, what)
		require.NotErrorIs(t, err, locker.ErrUnavailable, what)
		assert.NotContains(t, err.Error(), "\n", what)
	}
	found, _, err := s.admin.Exists("/fencing")
	require.NoError(t, err)
	assert.False(t, found, "nothing at all was written")
	// What lies close by is the caller's.
	_, err = s.guard.Multi(ctx, "r", 1)
	require.NoError(t, err)
	_, err = s.guard.Multi(ctx, "r", 1, set("/fencing", "x"), &zk.CreateRequest{Path: "/fencing/10",
		Acl: zk.WorldACL(zk.PermAll)},
		&zk.CheckVersionRequest{Path: "/fencing/1/mark/r", Version: 0})
	require.NoError(t, err)
}

func TestMarkThatNoGuardHasWrittenIsNotBelieved(t *testing.T) {
	s := newScene(t)
	put(t, s.admin, "/data", "old")
	_, err := s.guard.Multi(within(t, soon), "r", 1)
	require.NoError(t, err)
	for _, text := range []string{"x", "0", "007", "-1", "99999999999999999999"} {
		put(t, s.admin, "/fencing/1/mark/r", text)
		_, err := s.guard.Multi(within(t, soon), "r", 5, set("/data", "x"))
		require.ErrorContains(t, err, "no guard has written")
		_, err = s.guard.Mark(within(t, soon), "r")
		require.ErrorContains(t, err, "no guard has written")
		data, _ := look(t, s.admin, "/data")
		assert.Equal(t, "old", data)
	}
	// One that was made beforehand, empty, is one that has seen nothing.
	put(t, s.admin, "/fencing/1/mark/r", "")
	_, err = s.guard.Multi(within(t, soon), "r", 5, set("/data", "x"))
	require.NoError(t, err)
	_, err = s.guard.Multi(within(t, soon), "r", 4)
	require.ErrorIs(t, err, fencing.ErrStale)
}
