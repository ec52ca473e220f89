package zkguard_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/fencing"
	"github.com/golockers/locker/fencing/zkguard"
	"github.com/golockers/locker/internal/guardtest"
	"github.com/golockers/locker/internal/lab"
)

// history is every token that was written to /log, in order.
func history(t *testing.T, conn *zk.Conn) []fencing.Token {
	t.Helper()
	_, err := conn.Sync("/log")
	require.NoError(t, err)
	children, _, err := conn.Children("/log")
	require.NoError(t, err)
	tokens := make([]fencing.Token, len(children))
	order := map[int64]fencing.Token{}
	var zxids []int64
	for _, c := range children {
		data, stat, err := conn.Get("/log/" + c)
		require.NoError(t, err)
		token, err := fencing.Parse(string(data))
		require.NoError(t, err)
		order[stat.Czxid] = token
		zxids = append(zxids, stat.Czxid)
	}
	slices.Sort(zxids)
	for i, z := range zxids {
		tokens[i] = order[z]
	}
	return tokens
}

func TestProveLowerTokensNeverWriteAfterHigherOnesWhileALeaderIsKilled(t *testing.T) {
	lab.NeedProve(t)
	e := lab.StartZooKeeperEnsemble(t, 3)
	leader := e.Leader(t)
	admin := connect(t, e.Others(leader)[0].Addr())
	put(t, admin, "/log", "")
	var writers []func(context.Context, fencing.Token) error
	for range 6 {
		g := newGuard(t, connect(t, e.Addrs()...), nil)
		writers = append(writers, func(ctx context.Context, token fencing.Token) error {
			_, err := g.Multi(ctx, "r", token, &zk.CreateRequest{
				Path: "/log/", Data: []byte(token.String()), Acl: zk.WorldACL(zk.PermAll), Flags: zk.FlagSequence,
			})
			return err
		})
	}
	guardtest.DuringFault(t, writers, func() {
		leader.Kill()
		e.Leader(t, e.Others(leader)...)
	}, func() []fencing.Token { return history(t, admin) })
}

// Writers of one holder are not in each other's way.
func TestOneHolderWritesAtTheSameTime(t *testing.T) {
	s := newScene(t)
	var wg sync.WaitGroup
	for i := range 32 {
		path := "/data" + string(rune('A'+i))
		wg.Go(func() {
			_, err := s.guard.Multi(within(t, soon), "r", 7,
				&zk.CreateRequest{Path: path, Acl: zk.WorldACL(zk.PermAll)})
			assert.NoError(t, err)
		})
	}
	wg.Wait()
	_, stat, err := s.admin.Get("/fencing/1/mark/r")
	require.NoError(t, err)
	assert.Zero(t, stat.Version, "the mark was written once")
}

// A server that is behind shows an old mark: it must not let anything through
// that the newest one refuses.
func TestProveServerThatIsBehind(t *testing.T) {
	lab.NeedProve(t)
	// Ticks so long that it is followed for longer than all this takes.
	e := lab.StartZooKeeperEnsemble(t, 3, lab.WithTick(500*time.Millisecond))
	leader := e.Leader(t)
	behind := e.Others(leader)[0]
	other := connect(t, leader.Addr())
	put(t, other, "/data", "")
	next := newGuard(t, other, nil)
	// With tokens as high as the old mark, and higher. A connection each: what
	// one asks for waits for what it asked before.
	late := map[fencing.Token]*zkguard.Guard{}
	for _, token := range []fencing.Token{1, 5} {
		late[token] = newGuard(t, connect(t, behind.Addr()), nil)
		_, err := late[token].Multi(within(t, soon), "r", 1, set("/data", "first"))
		require.NoError(t, err)
	}

	e.Isolate(behind, lab.Hold)
	_, err := next.Multi(within(t, soon), "r", 9, set("/data", "next"))
	require.NoError(t, err)
	for token, g := range late {
		mark, err := g.Mark(within(t, soon), "r")
		require.NoError(t, err)
		require.EqualValues(t, 1, mark, "it does not know yet")
		_, err = g.Multi(within(t, 200*time.Millisecond), "r", token, set("/data", "late"))
		require.ErrorIs(t, err, fencing.ErrUnknown)
	}
	e.Isolate(behind, lab.Pass)
	for token, g := range late {
		require.Eventually(t, func() bool {
			_, err := g.Multi(within(t, soon), "r", token, set("/data", "late"))
			require.Error(t, err)
			if errors.Is(err, locker.ErrUnavailable) {
				return false // it had to find its leader again
			}
			var stale *fencing.StaleError
			require.ErrorAs(t, err, &stale)
			return assert.EqualValues(t, 9, stale.Mark)
		}, soon, 10*time.Millisecond)
	}
	data, _ := look(t, other, "/data")
	assert.Equal(t, "next", data)
}
