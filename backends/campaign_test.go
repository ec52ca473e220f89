package backends_test

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/backends"
	"github.com/golockers/locker/internal/lab"
)

// hold is the time in which a caller believed to hold a name, from when Lock had
// returned until it called Unlock, was told, or the lease was over.
type hold struct {
	shared   bool
	from, to time.Time
	token    uint64
}

// Readers and writers of six clients, each on a network of its own that fails again and
// again, a third of them writers: no writer holds beside anybody, tokens are in order,
// nobody is stuck, and nothing is left. CAMPAIGN is how many holds there have to be.
func TestProveSharedCampaigns(t *testing.T) {
	lab.NeedProve(t)
	enough, err := strconv.Atoi(cmp.Or(os.Getenv("CAMPAIGN"), "600"))
	require.NoError(t, err)
	redis := func(t *testing.T) []string { return []string{lab.StartRedis(t).Addr()} }
	node := func(t *testing.T) []string { return []string{lab.StartEtcd(t, 1).Nodes[0].Addr()} }
	for name, service := range map[string]struct {
		start func(t *testing.T) (addrs []string)
		url   func(addrs []string) string
	}{
		"single": {redis, func(addrs []string) string { return "redis://" + addrs[0] }},
		"postgres": {
			func(t *testing.T) []string { return []string{lab.StartPostgres(t).Addr()} },
			func(addrs []string) string { return new(lab.Postgres).URL(addrs[0]) },
		},
		"etcd": {node, func(addrs []string) string { return "etcd://" + addrs[0] }},
		"zookeeper": {
			func(t *testing.T) []string { return []string{lab.StartZooKeeper(t).Addr()} },
			func(addrs []string) string { return "zookeeper://" + addrs[0] + "?ttl=2s&tick=200ms" },
		},
		"bridge": {
			func(t *testing.T) []string { return append(redis(t), node(t)...) },
			func(addrs []string) string { return "redis://" + addrs[0] + " etcd://" + addrs[1] },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			addrs := service.start(t)
			open := func(addrs []string) *locker.Client {
				c, err := backends.Openers.Open(t.Context(), service.url(addrs), &locker.Options{TTL: campaignTTL})
				require.NoError(t, err)
				t.Cleanup(func() { _ = c.Close() })
				return c
			}
			if open(addrs).Guarantees().Shared == locker.SharingNone {
				t.Skip("it has no shared locks")
			}
			c := &campaign{t: t, holds: map[string][]hold{}}
			for i := range 6 {
				var proxies []*lab.Proxy
				var through []string
				for _, a := range addrs {
					p := lab.StartProxy(t, a)
					proxies, through = append(proxies, p), append(through, p.Addr())
				}
				c.add(open(through), proxies, uint64(i))
			}
			require.Eventually(t, func() bool { return c.count.Load() >= int64(enough) }, 9*time.Minute, 50*time.Millisecond)
			c.end()
			c.check(open(addrs))
		})
	}
}

const (
	campaignTTL   = 2 * time.Second
	campaignNames = 16
)

type campaign struct {
	t       *testing.T
	count   atomic.Int64
	over    atomic.Bool
	all     sync.WaitGroup
	faults  sync.WaitGroup
	unknown atomic.Int64 // Unlocks and Locks with an unknown outcome, and leases that were lost

	mu    sync.Mutex
	holds map[string][]hold // by name
}

// add has callers of a client come and go, and lets its network fail.
func (c *campaign) add(client *locker.Client, proxies []*lab.Proxy, seed uint64) {
	random := rand.New(rand.NewPCG(seed, 0))
	c.faults.Go(func() {
		for !c.over.Load() {
			time.Sleep(time.Duration(random.IntN(3000)) * time.Millisecond)
			p := proxies[random.IntN(len(proxies))]
			switch random.IntN(5) {
			case 0:
				p.Set(lab.Drop)
			case 1:
				p.SetReplies(lab.Drop)
			case 2:
				p.SetRequests(lab.Hold)
			case 3:
				p.SetDelay(time.Duration(random.IntN(50)) * time.Millisecond)
			case 4:
				p.Set(lab.Reset)
			}
			time.Sleep(time.Duration(random.IntN(3000)) * time.Millisecond)
			p.SetDelay(0)
			p.Set(lab.Pass)
		}
	})
	for i := range 8 {
		random := rand.New(rand.NewPCG(seed, uint64(i+1)))
		c.all.Go(func() {
			for !c.over.Load() {
				c.once(client, random)
			}
		})
	}
}

func (c *campaign) once(client *locker.Client, random *rand.Rand) {
	name := "campaign-" + strconv.Itoa(random.IntN(campaignNames))
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(10+random.IntN(4000))*time.Millisecond)
	defer cancel()
	lock, h := client.Lock, hold{shared: random.IntN(3) > 0}
	if random.IntN(5) == 0 {
		lock = client.TryLock
	}
	var opts []locker.Option
	if h.shared {
		opts = append(opts, locker.Shared())
	}
	lease, err := lock(ctx, name, opts...)
	if err != nil {
		if !errors.Is(err, locker.ErrHeld) {
			c.unknown.Add(1)
			time.Sleep(10 * time.Millisecond)
		}
		return
	}
	h.from = time.Now()
	h.token, _ = lease.Token()
	lasts := time.Duration(random.IntN(10)) * time.Millisecond
	if random.IntN(80) == 0 {
		lasts = time.Duration(random.IntN(4000)) * time.Millisecond
	}
	select {
	case <-lease.Done():
		c.unknown.Add(1)
	case <-time.After(lasts):
	}
	h.to = time.Now()
	if until := lease.Until(); until.Before(h.to) {
		h.to = until
	}
	c.mu.Lock()
	c.holds[name] = append(c.holds[name], h)
	c.mu.Unlock()
	c.count.Add(1)
	brief, end := context.WithTimeout(context.Background(), time.Second)
	defer end()
	if lease.Unlock(brief) != nil {
		c.unknown.Add(1)
	}
}

// end heals the networks and waits for the callers.
func (c *campaign) end() {
	c.over.Store(true)
	c.faults.Wait()
	c.all.Wait()
}

func (c *campaign) check(client *locker.Client) {
	readers, writers, together := 0, 0, 0
	for name, holds := range c.holds {
		slices.SortFunc(holds, func(a, b hold) int { return a.from.Compare(b.from) })
		var last, alone uint64 // the greatest tokens before, and those of writers
		for i, h := range holds {
			for j := i - 1; j >= 0 && j >= i-200; j-- {
				before := holds[j]
				switch {
				case !before.to.After(h.from):
				case !before.shared || !h.shared:
					c.t.Errorf("%s: %+v and %+v at once", name, before, h)
				default:
					together++
					assert.Equal(c.t, before.token, h.token, "they hold together")
				}
			}
			if h.shared {
				readers++
				assert.True(c.t, h.token == 0 || h.token >= last && h.token > alone, "%+v after %d", h, last)
			} else {
				writers++
				assert.Greater(c.t, h.token, last)
				alone = h.token
			}
			last = max(last, h.token)
		}
		ctx, cancel := context.WithTimeout(context.Background(), 2*campaignTTL+client.Guarantees().DeadHolderSlack+10*time.Second)
		lease, err := client.Lock(ctx, name)
		cancel()
		if assert.NoError(c.t, err, "nobody is in the way any more") {
			assert.NoError(c.t, lease.Unlock(context.Background()))
		}
	}
	c.t.Logf("%d holds of readers, %d pairs of them at once, %d of writers; %d times an error, a loss, or no answer",
		readers, together, writers, c.unknown.Load())
	assert.Positive(c.t, together)
	assert.Eventually(c.t, func() bool {
		for _, err := range client.List(context.Background(), "campaign-") {
			assert.NoError(c.t, err)
			return false
		}
		return true
	}, 2*campaignTTL+client.Guarantees().DeadHolderSlack+10*time.Second, 100*time.Millisecond, "something is left")
}
