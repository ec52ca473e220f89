package zkguard_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/fencing"
	"github.com/golockers/locker/fencing/zkguard"
	"github.com/golockers/locker/internal/lab"
)

// race lets writers with tokens of all ages each append a node to /log, until
// stop says so. It returns how many writes were accepted, and how many of unknown outcome.
func race(t *testing.T, servers []string, writers int, stop func(written int64) bool) (accepted,
	unknown int64) {
	t.Helper()
	var newest, ok, doubtful, stale atomic.Int64
	var wg sync.WaitGroup
	for range writers {
		g := newGuard(t, connect(t, servers...), nil)
		wg.Go(func() {
			for !stop(ok.Load()) {
				token := fencing.Token(newest.Add(1))
				token -= min(token-1, fencing.Token(rand.IntN(4)))
				ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
				_, err := g.Multi(ctx, "r", token, &zk.CreateRequest{
					Path: "/log/", Data: []byte(token.String()), Acl: zk.WorldACL(zk.PermAll), Flags: zk.FlagSequence,
				})
				cancel()
				switch {
				case err == nil:
					ok.Add(1)
				case errors.Is(err, fencing.ErrStale):
					stale.Add(1)
				case errors.Is(err, fencing.ErrUnknown):
					doubtful.Add(1)
				default:
					assert.ErrorIs(t, err, locker.ErrUnavailable)
				}
			}
		})
	}
	wg.Wait()
	assert.NotZero(t, stale.Load(), "the writers were never in each other's way")
	return ok.Load(), doubtful.Load()
}

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
	kill, over := make(chan struct{}), make(chan struct{})
	var once sync.Once
	var elected atomic.Bool
	go func() {
		defer close(over)
		<-kill
		leader.Kill()
		e.Leader(t, e.Others(leader)...)
		elected.Store(true)
	}()
	const writes = 40
	var beyond atomic.Int64 // what was written under the next leader
	accepted, unknown := race(t, e.Addrs(), 6, func(written int64) bool {
		if written >= writes {
			once.Do(func() { close(kill) })
		}
		if !elected.Load() {
			return false
		}
		beyond.CompareAndSwap(0, written)
		return written >= beyond.Load()+writes
	})
	<-over
	tokens := history(t, admin)
	assert.IsNonDecreasing(t, tokens)
	assert.GreaterOrEqual(t, len(tokens), int(accepted), "what was accepted is there")
	assert.LessOrEqual(t, len(tokens), int(accepted+unknown), "what was refused is not")
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
