package single_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/internal/campaign"
	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/internal/locktest"
	"github.com/golockers/locker/internal/redisnode"
)

// Five fail-overs one after the other: each may lose a lock, as the documentation
// says, but no token ever falls, everybody goes on, and nothing is left behind.
func TestAgeingFiveFailOvers(t *testing.T) {
	lab.NeedProve(t)
	const failOvers = 5
	s := lab.StartSentinel(t, failOvers)
	u := "redis+sentinel://" + strings.Join(s.Addrs(), ",") + "?master_name=" + s.Name
	overlaps, _ := ages(t, u, 4*time.Second, campaign.Names(1), failOvers, func(int) { s.KillPrimary(t) })
	assert.LessOrEqual(t, overlaps, failOvers, "more held on while another did than fail-overs can have lost a lock")
}

// The slots of all locks move from server to server, again and again. That costs
// nobody a lease.
func TestAgeingSlotsThatMove(t *testing.T) {
	lab.NeedProve(t)
	c := lab.StartCluster(t)
	names := campaign.Names(1)
	u := "redis+cluster://" + strings.Join(c.Addrs(), ",")
	overlaps, lost := ages(t, u, 3*time.Second, names, 9, func(round int) {
		for _, name := range append(names, "long") {
			slot := c.Nodes[0].MustDo(t, "CLUSTER", "KEYSLOT", redisnode.LockKey(name)).(int64)
			from := c.NodeOf(t, redisnode.LockKey(name))
			at := 0
			for i, n := range c.Nodes {
				if n == from {
					at = (i + round) % len(c.Nodes)
				}
			}
			c.Move(t, slot, c.Nodes[at], c.Nodes[(at+1)%len(c.Nodes)])
		}
	})
	assert.Zero(t, overlaps, "two held at once")
	assert.Zero(t, lost, "a lease was lost")
}

// ages has four clients use a lock, and a fifth keep one, while a step is taken again and again.
func ages(t *testing.T, url string, ttl time.Duration, names []string, steps int, step func(n int)) (overlaps int, lost int64) {
	t.Helper()
	var clients []*locker.Client
	for range 5 {
		c, err := locker.Open(t.Context(), url, &locker.Options{TTL: ttl, OutageTimeout: time.Minute}, openers)
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close() })
		clients = append(clients, c)
	}
	long := locktest.Lock(t, clients[0], "long")
	c := campaign.Begin(t, names, false, 1, clients[1:]...)
	for n := range steps {
		c.GoesOn(10, 40*time.Second)
		step(n)
	}
	c.GoesOn(10, 40*time.Second)
	lost = c.Lost()
	if long.Unlock(t.Context()) != nil {
		lost++
	}
	both, _ := c.End(clients[0])
	t.Logf("%d leases lost, and at once: %v", lost, both)
	return len(both), lost
}
