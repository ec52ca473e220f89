package etcdguard_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/golockers/locker"
	"github.com/golockers/locker/fencing"
	"github.com/golockers/locker/internal/lab"
)

// race lets writers with tokens of all ages write to the key data, until
// stop says so. It returns how many writes were accepted, and how many of unknown outcome.
func race(t *testing.T, s scene, writers int, stop func(written int64) bool) (accepted, unknown int64) {
	t.Helper()
	var newest, ok, doubtful, stale atomic.Int64
	var wg sync.WaitGroup
	for range writers {
		g := newGuard(t, dial(t, s.Addrs()), nil)
		wg.Go(func() {
			for !stop(ok.Load()) {
				token := fencing.Token(newest.Add(1))
				token -= min(token-1, fencing.Token(rand.IntN(4)))
				ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
				_, err := g.Commit(ctx, "r", token, clientv3.OpPut("data", token.String()))
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

// history is every value that was ever at data, in order.
func (s scene) history(t *testing.T) (tokens []fencing.Token) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	last := s.revision(t)
	for resp := range s.admin.Watch(ctx, "data", clientv3.WithRev(1), clientv3.WithProgressNotify()) {
		require.NoError(t, resp.Err())
		for _, e := range resp.Events {
			token, err := fencing.Parse(string(e.Kv.Value))
			require.NoError(t, err)
			tokens = append(tokens, token)
			// The mark is never behind what was written with it.
			at, err := s.admin.Get(ctx, "fencing/1/mark/r", clientv3.WithRev(e.Kv.ModRevision))
			require.NoError(t, err)
			require.Len(t, at.Kvs, 1)
			require.Equal(t, e.Kv.ModRevision, at.Kvs[0].ModRevision, "the mark is written in the same transaction")
		}
		if resp.Header.Revision >= last {
			break
		}
		require.NoError(t, s.admin.RequestProgress(ctx))
	}
	return tokens
}

func TestProveLowerTokensNeverWriteAfterHigherOnesWhileALeaderIsKilled(t *testing.T) {
	lab.NeedProve(t)
	s := newScene(t, 3)
	kill := make(chan struct{})
	var once sync.Once
	var after atomic.Int64 // what had been written when the next leader was there
	over := make(chan struct{})
	go func() {
		defer close(over)
		<-kill
		leader := s.Leader(t)
		leader.Kill()
		s.Leader(t, leader)
		after.Store(1)
	}()
	const writes = 40
	var beyond atomic.Int64
	accepted, unknown := race(t, s, 6, func(written int64) bool {
		if written >= writes {
			once.Do(func() { close(kill) })
		}
		if after.Load() == 0 {
			return false
		}
		return beyond.Add(1) > 60
	})
	<-over
	tokens := s.history(t)
	assert.IsNonDecreasing(t, tokens)
	assert.GreaterOrEqual(t, len(tokens), int(accepted), "what was accepted is there")
	assert.LessOrEqual(t, len(tokens), int(accepted+unknown), "what was refused is not")
	assert.Greater(t, accepted, int64(writes))
}
