// Package campaign has clients use locks while what they stand on is broken again and again, or grows old,
// and judges what they saw: what the engine and the services do together, ten thousand times over. The contract of
// a service by itself is judged by package conformance, one short history after the other.
package campaign

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/bridge"
	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/holds"
	"github.com/golockers/locker/internal/lab"
)

// TTL is that of the locks of [Run].
const TTL = 2 * time.Second

// Names returns the names that a campaign uses.
func Names(n int) (all []string) {
	for i := range n {
		all = append(all, "campaign-"+strconv.Itoa(i))
	}
	return all
}

// Campaign is callers that take and give back locks.
type Campaign struct {
	t      *testing.T
	names  []string
	shares bool // two thirds of the callers do
	seed   uint64
	over   atomic.Bool
	all    sync.WaitGroup

	count, lost     atomic.Int64
	unknown, failed atomic.Int64 // of Unlocks and Locks: all errors, and those before the call's time was over

	began time.Time
	mu    sync.Mutex
	holds map[string][]holds.Hold // by name, in nanoseconds since it began
}

// seed returns what is drawn from: SEED, or any.
func seed(t *testing.T) uint64 {
	n, err := strconv.ParseUint(cmp.Or(os.Getenv("SEED"), strconv.Itoa(rand.IntN(1e6))), 10, 64)
	require.NoError(t, err)
	t.Logf("SEED=%d", n)
	return n
}

// Begin has so many callers of each client use names, until [Campaign.End].
func Begin(t *testing.T, names []string, shares bool, callers int, clients ...*locker.Client) *Campaign {
	c := &Campaign{t: t, names: names, shares: shares, seed: seed(t), began: time.Now(),
		holds: map[string][]holds.Hold{}}
	t.Cleanup(c.stop) // before the clients are closed
	for i := range callers * len(clients) {
		random := rand.New(rand.NewPCG(c.seed, uint64(i)))
		c.all.Go(func() {
			for !c.over.Load() {
				c.once(clients[i%len(clients)], random)
			}
		})
	}
	return c
}

func (c *Campaign) stop() {
	c.over.Store(true)
	c.all.Wait()
}

// GoesOn waits until locks were held so often more.
func (c *Campaign) GoesOn(times int, within time.Duration) {
	c.t.Helper()
	until := c.count.Load() + int64(times)
	require.Eventually(c.t, func() bool { return c.count.Load() >= until }, within, 10*time.Millisecond,
		"nobody gets a lock any more")
}

// longest is how long a campaign takes, however few holds a slow machine has made by then.
const longest = 3 * time.Minute

// Run has readers and writers of six clients use locks, each on a network of its own that fails again and
// again, a third of them writers where locks can be shared: no writer holds beside anybody, tokens are in
// order, nobody is stuck, and nothing is left. addrs are where the servers listen, and url makes a URL of
// where they are reached. CAMPAIGN is how many holds there are at most, SEED what is drawn.
func Run(t *testing.T, openers driver.Openers, addrs []string, url func(addrs []string) string) {
	enough, err := strconv.Atoi(cmp.Or(os.Getenv("CAMPAIGN"), "10000"))
	require.NoError(t, err)
	open := func(addrs []string) *locker.Client {
		c, err := bridge.Open(t.Context(), url(addrs), &locker.Options{TTL: TTL}, openers)
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	var clients []*locker.Client
	var networks [][]*lab.Proxy
	for range 6 {
		var proxies []*lab.Proxy
		var at []string
		for _, a := range addrs {
			p := lab.StartProxy(t, a)
			proxies, at = append(proxies, p), append(at, p.Addr())
		}
		clients, networks = append(clients, open(at)), append(networks, proxies)
	}
	straight := open(addrs)
	shares := straight.Guarantees().Shared != locker.SharingNone
	c := Begin(t, Names(16), shares, 8, clients...)
	var faults sync.WaitGroup
	for i, proxies := range networks {
		random := rand.New(rand.NewPCG(c.seed+1, uint64(i)))
		faults.Go(func() {
			for !c.over.Load() {
				fail(proxies[random.IntN(len(proxies))], random)
			}
		})
	}
	for began := time.Now(); c.count.Load() < int64(enough) && time.Since(began) < longest; {
		c.GoesOn(min(enough, 100), 90*time.Second)
	}
	c.over.Store(true)
	faults.Wait()
	overlaps, together := c.End(straight)
	assert.Empty(t, overlaps)
	assert.Equal(t, shares, together > 0)
}

// fail breaks a network for a while.
func fail(p *lab.Proxy, random *rand.Rand) {
	a, while := random.IntN(5), func() { time.Sleep(time.Duration(random.IntN(3000)) * time.Millisecond) }
	while()
	[]func(){
		func() { p.Set(lab.Drop) },
		func() { p.Replies(lab.Drop) },
		func() { p.Requests(lab.Hold) },
		func() { p.SetDelay(time.Duration(random.IntN(50)) * time.Millisecond) },
		func() { p.Set(lab.Reset) },
	}[a]()
	while()
	p.SetDelay(0)
	p.Set(lab.Pass)
}

func (c *Campaign) once(client *locker.Client, random *rand.Rand) {
	name := c.names[random.IntN(len(c.names))]
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(10+random.IntN(4000))*time.Millisecond)
	defer cancel()
	lock := client.Lock
	h := holds.Hold{Shared: c.shares && random.IntN(3) > 0, Asked: int64(time.Since(c.began))}
	if random.IntN(5) == 0 {
		lock = client.TryLock
	}
	var opts []locker.Option
	if h.Shared {
		opts = append(opts, locker.Shared())
	}
	lease, err := lock(ctx, name, opts...)
	if err != nil {
		if !errors.Is(err, locker.ErrHeld) {
			c.fails(ctx)
			time.Sleep(10 * time.Millisecond)
		}
		return
	}
	h.From = int64(time.Since(c.began))
	h.Token, _ = lease.Token()
	lasts := time.Duration(random.IntN(10)) * time.Millisecond
	if random.IntN(80) == 0 {
		lasts = time.Duration(random.IntN(4000)) * time.Millisecond
	}
	select {
	case <-lease.Done():
		c.lost.Add(1)
	case <-time.After(lasts):
	}
	// Until it calls Unlock, was told, or the lease was over.
	h.To = int64(min(time.Since(c.began), lease.Until().Sub(c.began)))
	c.mu.Lock()
	c.holds[name] = append(c.holds[name], h)
	c.mu.Unlock()
	c.count.Add(1)
	brief, end := context.WithTimeout(context.Background(), time.Second)
	defer end()
	if lease.Unlock(brief) != nil {
		c.fails(brief)
	}
}

func (c *Campaign) fails(ctx context.Context) {
	if c.unknown.Add(1); ctx.Err() == nil {
		c.failed.Add(1)
	}
}

// Failed is how many calls have failed so far, and not because their time was over.
func (c *Campaign) Failed() int64 { return c.failed.Load() }

// Lost is how many leases were lost so far.
func (c *Campaign) Lost() int64 { return c.lost.Load() }

// End ends the campaign. The test fails where tokens were not in order, a name does not become free for client, or
// anything is left. End returns who held while another did, and should not have, each with the first of these; and how
// many pairs of readers did.
func (c *Campaign) End(client *locker.Client) (overlaps []string, together int) {
	c.stop()
	free := 2*TTL + client.Guarantees().DeadHolderSlack + 10*time.Second
	for name, all := range c.holds {
		told := map[holds.Hold]bool{}
		holds.Judge(all, func(before, next holds.Hold) {
			if before.Shared && next.Shared {
				together++
			} else if !told[before] {
				told[before] = true
				overlaps = append(overlaps, fmt.Sprintf("%s: %+v and %+v at once", name, before, next))
			}
		}, func(before, next holds.Hold) {
			assert.Fail(c.t, "tokens are not in order", "%s: %+v and %+v", name, before, next)
		})
		ctx, cancel := context.WithTimeout(context.Background(), free)
		lease, err := client.Lock(ctx, name)
		cancel()
		if assert.NoError(c.t, err, "nobody is in the way any more") {
			assert.NoError(c.t, lease.Unlock(context.Background()))
		}
	}
	c.t.Logf("%d holds, %d pairs of readers at once, %d leases lost; %d times an error, or no answer",
		c.count.Load(), together, c.lost.Load(), c.unknown.Load())
	assert.Eventually(c.t, func() bool {
		for _, err := range client.List(context.Background(), "campaign-") {
			return errors.Is(err, errors.ErrUnsupported)
		}
		return true
	}, free, 100*time.Millisecond, "something is left")
	return overlaps, together
}
