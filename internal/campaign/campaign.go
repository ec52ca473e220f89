package campaign

import (
	"cmp"
	"context"
	"errors"
	"fmt"
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
	"github.com/golockers/locker/internal/lab"
)

const (
	ttl     = 2 * time.Second
	names   = 16
	clients = 6
	callers = 8 // of each client
)

// hold is the time in which a caller believed to hold a name, from when Lock had
// returned until it called Unlock, was told, or the lease was over.
type hold struct {
	shared   bool
	from, to time.Time
	token    uint64
}

// Opener is such as locker.Openers.
type Opener interface {
	Open(ctx context.Context, rawURL string, opts *locker.Options) (*locker.Client, error)
}

// Run has readers and writers of six clients use locks, each on a network of its own that fails again and
// again, a third of them writers where locks can be shared: no writer holds beside anybody, tokens are in
// order, nobody is stuck, and nothing is left. addrs are where the servers listen, and url makes a URL of
// where they are reached. CAMPAIGN is how many holds there have to be, SEED what is drawn.
func Run(t *testing.T, openers Opener, addrs []string, url func(addrs []string) string) {
	enough, err := strconv.Atoi(cmp.Or(os.Getenv("CAMPAIGN"), "10000"))
	require.NoError(t, err)
	seed, err := strconv.ParseUint(cmp.Or(os.Getenv("SEED"), strconv.Itoa(rand.IntN(1e6))), 10, 64)
	require.NoError(t, err)
	t.Logf("SEED=%d", seed)
	open := func(addrs []string) *locker.Client {
		c, err := openers.Open(t.Context(), url(addrs), &locker.Options{TTL: ttl})
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	straight := open(addrs)
	c := &campaign{t: t, holds: map[string][]hold{}, shares: straight.Guarantees().Shared != locker.SharingNone}
	for i := range clients {
		var proxies []*lab.Proxy
		var at []string
		for _, a := range addrs {
			p := lab.StartProxy(t, a)
			proxies, at = append(proxies, p), append(at, p.Addr())
		}
		c.add(open(at), proxies, seed+uint64(i))
	}
	require.Eventually(t, func() bool { return c.count.Load() >= int64(enough) }, 9*time.Minute, 50*time.Millisecond)
	c.over.Store(true)
	c.faults.Wait()
	c.all.Wait()
	c.check(straight)
}

type campaign struct {
	t       *testing.T
	count   atomic.Int64
	over    atomic.Bool
	shares  bool
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
				p.Replies(lab.Drop)
			case 2:
				p.Requests(lab.Hold)
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
	for i := range callers {
		random := rand.New(rand.NewPCG(seed, uint64(i+1)))
		c.all.Go(func() {
			for !c.over.Load() {
				c.once(client, random)
			}
		})
	}
}

func (c *campaign) once(client *locker.Client, random *rand.Rand) {
	name := "campaign-" + strconv.Itoa(random.IntN(names))
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(10+random.IntN(4000))*time.Millisecond)
	defer cancel()
	lock, h := client.Lock, hold{shared: c.shares && random.IntN(3) > 0}
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

func (c *campaign) check(client *locker.Client) {
	free := 2*ttl + client.Guarantees().DeadHolderSlack + 10*time.Second
	all, together := 0, 0
	for name, holds := range c.holds {
		pairs, broken := judge(holds)
		all, together = all+len(holds), together+pairs
		for _, says := range broken {
			c.t.Errorf("%s: %s", name, says)
		}
		ctx, cancel := context.WithTimeout(context.Background(), free)
		lease, err := client.Lock(ctx, name)
		cancel()
		if assert.NoError(c.t, err, "nobody is in the way any more") {
			assert.NoError(c.t, lease.Unlock(context.Background()))
		}
	}
	c.t.Logf("%d holds, %d pairs of readers at once; %d times an error, a loss, or no answer",
		all, together, c.unknown.Load())
	assert.Equal(c.t, c.shares, together > 0)
	assert.Eventually(c.t, func() bool {
		for _, err := range client.List(context.Background(), "campaign-") {
			return errors.Is(err, errors.ErrUnsupported)
		}
		return true
	}, free, 100*time.Millisecond, "something is left")
}

// judge says what is wrong with the holds of one name, and how many pairs of readers held together.
func judge(holds []hold) (together int, broken []string) {
	slices.SortFunc(holds, func(a, b hold) int { return a.from.Compare(b.from) })
	var last, alone uint64 // the greatest tokens before, and those of writers
	var inside []hold      // those before that have not ended, however long ago they came
	for _, h := range holds {
		inside = slices.DeleteFunc(inside, func(before hold) bool { return !before.to.After(h.from) })
		for _, before := range inside {
			if !before.shared || !h.shared {
				broken = append(broken, fmt.Sprintf("%+v and %+v at once", before, h))
				continue
			}
			if together++; before.token != h.token {
				broken = append(broken, fmt.Sprintf("%+v and %+v share, and not a token", before, h))
			}
		}
		inside = append(inside, h)
		switch {
		case !h.shared && h.token <= last, h.shared && h.token != 0 && (h.token < last || h.token <= alone):
			broken = append(broken, fmt.Sprintf("%+v after token %d", h, last))
		}
		if !h.shared {
			alone = h.token
		}
		last = max(last, h.token)
	}
	return together, broken
}
