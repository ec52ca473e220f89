package etcd_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/etcd"
	"github.com/golockers/locker/internal/campaign"
	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/internal/locktest"
)

// A cluster is rolled from the oldest version that is supported to the newest, as etcd allows: by a minor
// version at a time, and a member at a time. Revisions are compacted all the time.
func TestProveLocksOutliveAllVersions(t *testing.T) {
	t.Parallel()
	lab.NeedProve(t)
	s := newScene(t, 3, lab.WithTool(lab.ToolOldEtcd),
		lab.WithConfig("auto-compaction-mode", "periodic"), lab.WithConfig("auto-compaction-retention", "1s"),
		lab.WithConfig("snapshot-count", "50")) // 3.6 does not read what 3.4 has logged since the last snapshot
	var clients []*locker.Client
	for i := range 4 {
		b := backendWith(t, s.Addrs(), &etcd.Options{StrictExpiry: i%2 == 0, MaxTTL: 10 * time.Second})
		c := locktest.Must(locker.New(b, &locker.Options{TTL: 10 * time.Second, OutageTimeout: 20 * time.Second}))
		t.Cleanup(func() { _ = c.Close() })
		clients = append(clients, c)
	}
	admin := dial(t, s.Addrs())
	held := locktest.Lock(t, clients[0], "held")
	c := campaign.Begin(t, campaign.Names(3), false, 3, clients...)
	// step waits until everybody has had the lock once more, and forgets all revisions but the latest.
	step := func() {
		c.GoesOn(2*len(clients), 30*time.Second)
		if now, err := admin.Get(within(t, 5*time.Second), "x"); err == nil {
			_, _ = admin.Compact(within(t, 5*time.Second), now.Header.Revision)
		}
	}
	for _, version := range []string{lab.ToolEtcd35, lab.ToolEtcdBefore, lab.ToolEtcd} {
		s.Roll(t, version, step)
		t.Logf("all members run %s", version)
	}
	for _, c := range clients {
		l := locktest.Lock(t, c, "afterwards")
		require.NoError(t, l.Unlock(t.Context()))
	}
	overlaps, _ := c.End(clients[0])
	assert.Empty(t, overlaps)
	assert.Zero(t, c.Lost(), "leases lost")
	assert.Zero(t, c.Failed(), "calls that failed, and not because their time was over")
	assert.NoError(t, held.Unlock(t.Context()), "the lock that was held all the time")
}
