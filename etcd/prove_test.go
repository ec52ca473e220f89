package etcd_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/golockers/locker"
	"github.com/golockers/locker/etcd"
	"github.com/golockers/locker/internal/lab"
)

// fleet is programs that use a cluster, each with a client of its own, while something is done to the
// cluster.
type fleet struct {
	t       *testing.T
	clients []*locker.Client
	names   int
	hold    time.Duration
	admin   *clientv3.Client // of the cluster that has the resources; nil: nothing is written

	turns, lost, stale, writes atomic.Int64
	longest                    atomic.Int64
}

// run has each client take and give back locks, and one hold a lock all the time, until do returns. Two never
// hold at once, tokens rise, the resource refuses no holder, and no lease is lost.
func (f *fleet) run(do func()) {
	ctx, cancel := context.WithCancel(f.t.Context())
	defer cancel()
	held, err := f.clients[0].Lock(ctx, "held")
	require.NoError(f.t, err)
	inside, last := make([]atomic.Int64, f.names), make([]atomic.Uint64, f.names)
	var all sync.WaitGroup
	for n, c := range f.clients {
		for i := range f.names {
			all.Go(func() {
				for name := fmt.Sprint("n", i); ctx.Err() == nil; {
					began := time.Now()
					l, err := c.Lock(ctx, name)
					if ctx.Err() != nil {
						if err == nil {
							_ = l.Unlock(context.Background())
						}
						return
					}
					if !assert.NoError(f.t, err, "client %d", n) {
						return
					}
					f.longest.Store(max(f.longest.Load(), int64(time.Since(began))))
					token, _ := l.Token()
					assert.EqualValues(f.t, 1, inside[i].Add(1), "one holds %s", name)
					assert.Greater(f.t, token, last[i].Swap(token))
					f.write(name, token)
					select {
					case <-l.Done():
						f.lost.Add(1)
					case <-time.After(f.hold):
					}
					inside[i].Add(-1)
					f.turns.Add(1)
					_ = l.Unlock(context.Background())
				}
			})
		}
	}
	do()
	before := f.turns.Load()
	eventually(f.t, time.Minute, "they go on", func() bool {
		return f.t.Failed() || f.turns.Load() >= before+int64(len(f.clients))
	})
	cancel()
	all.Wait()
	assert.NoError(f.t, held.Unlock(f.t.Context()), "the lock that was held all the time")
	f.t.Logf("%d turns, %d writes, the longest wait %v", f.turns.Load(), f.writes.Load(),
		time.Duration(f.longest.Load()))
	assert.Zero(f.t, f.lost.Load(), "leases lost")
	assert.Zero(f.t, f.stale.Load(), "holders refused")
}

// write is what a holder does to the resource.
func (f *fleet) write(name string, token uint64) {
	if f.admin == nil {
		return
	}
	ctx, cancel := context.WithTimeout(f.t.Context(), time.Second)
	defer cancel()
	key, text := "data/"+name, fmt.Sprintf("%020d", token)
	resp, err := f.admin.Txn(ctx).If(clientv3.Compare(clientv3.Value(key), ">", text)).
		Else(clientv3.OpPut(key, text)).Commit()
	switch {
	case err != nil: // it has no answer: a member was stopped
	case resp.Succeeded:
		f.stale.Add(1)
	default:
		f.writes.Add(1)
	}
}

// A cluster is rolled from the oldest version that is supported to the newest, as etcd allows: by a minor
// version at a time, and a member at a time. Then all members are replaced. Revisions are compacted all the
// time.
func TestProveLocksOutliveAllVersionsAndAllMembers(t *testing.T) {
	t.Parallel()
	lab.NeedProve(t)
	s := newScene(t, 3, lab.WithTool(lab.ToolOldEtcd),
		lab.WithConfig("auto-compaction-mode", "periodic"), lab.WithConfig("auto-compaction-retention", "1s"),
		lab.WithConfig("snapshot-count", "50")) // 3.6 does not read what 3.4 has logged since the last snapshot
	follows := func(c *clientv3.Config) { c.AutoSyncInterval = 300 * time.Millisecond }
	f := &fleet{t: t, names: 3, hold: 20 * time.Millisecond}
	for i := range 4 {
		b, err := etcd.New(dial(t, s.Addrs(), follows),
			&etcd.Options{StrictExpiry: i%2 == 0, MaxTTL: 10 * time.Second})
		require.NoError(t, err)
		c := locker.New(b, &locker.Options{TTL: 10 * time.Second, Patience: 20 * time.Second})
		t.Cleanup(func() { _ = c.Close(); _ = b.Close() })
		f.clients = append(f.clients, c)
	}
	admin := dial(t, s.Addrs(), follows)
	f.admin = admin
	// step waits until everybody has had the lock once more, and forgets all revisions but the latest.
	step := func() {
		before := f.turns.Load()
		eventually(t, 30*time.Second, "they go on",
			func() bool { return f.turns.Load() > before+int64(2*len(f.clients)) })
		if now, err := admin.Get(within(t, 5*time.Second), "x"); err == nil {
			_, _ = admin.Compact(within(t, 5*time.Second), now.Header.Revision)
		}
	}
	f.run(func() {
		for _, version := range []string{lab.ToolEtcd35, lab.ToolEtcdBefore, lab.ToolEtcd} {
			s.Roll(t, version, step)
			t.Logf("all members run %s", version)
		}
		for i := range s.Nodes {
			s.Replace(t, i)
			step()
		}
		// All that the clients were given at first is gone.
		for _, c := range f.clients {
			l, err := c.Lock(within(t, 20*time.Second), "afterwards")
			require.NoError(t, err)
			require.NoError(t, l.Unlock(t.Context()))
		}
	})
}
