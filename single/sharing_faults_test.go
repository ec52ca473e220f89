package single_test

import (
	"context"
	crand "crypto/rand"
	"errors"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/internal/redisconn"
	"github.com/golockers/locker/single"
)

// guest is one that has the lock, in the campaign below.
type guest struct {
	lease  *locker.Lease
	writes bool
}

// house looks who is in beside whom, and at their tokens.
type house struct {
	t       *testing.T
	mu      sync.Mutex
	inside  map[guest]bool
	last    uint64
	readers bool // have the last token

	entered, writers, most, lost int
}

// enter looks at leases that are valid: at the same moment, since nobody comes meanwhile.
func (h *house) enter(g guest) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.inside[g] = true
	token, _ := g.lease.Token()
	valid := 0
	for other := range h.inside {
		if other.lease.Err() != nil {
			continue
		}
		if valid++; other != g && (other.writes || g.writes) && g.lease.Err() == nil {
			assert.Fail(h.t, "a writer is not alone")
		}
	}
	if token < h.last || token == h.last && (g.writes || !h.readers) {
		// Nobody has a lower token whose lease is not over.
		assert.Error(h.t, g.lease.Err(), "token %d after %d, writes %t", token, h.last, g.writes)
	} else {
		h.last, h.readers = token, !g.writes
	}
	h.most = max(h.most, valid)
	if h.entered++; g.writes {
		h.writers++
	}
}

func (h *house) leave(g guest) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.inside, g)
	if g.lease.Err() != nil {
		h.lost++
	}
}

// Readers and writers of six clients contend for a name, while their networks lose requests and
// replies, keep them back and break; and while some die, or leave in the middle.
func TestProveSharingUnderFaults(t *testing.T) {
	lab.NeedProve(t)
	const clients, workers, acquisitions, ttl = 6, 8, 2_000, time.Second
	server := lab.StartRedis(t)
	h := &house{t: t, inside: map[guest]bool{}}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var all, faults sync.WaitGroup
	for i := range clients {
		proxy := lab.StartProxy(t, server.Addr())
		b, err := single.New(newClient(t, &redis.Options{Addr: proxy.Addr()}), &single.Options{Timeout: ttl / 2})
		require.NoError(t, err)
		c := locker.New(b, &locker.Options{TTL: ttl, Patience: time.Minute})
		t.Cleanup(func() {
			assert.NoError(t, c.Close())
			_ = b.Close()
		})
		for j := range workers {
			random := rand.New(rand.NewPCG(uint64(i), uint64(j)))
			all.Go(func() {
				for ctx.Err() == nil {
					h.visit(ctx, c, random)
				}
			})
		}
		random := rand.New(rand.NewPCG(uint64(i), 99))
		faults.Go(func() {
			modes := []lab.Mode{lab.Hold, lab.Drop, lab.Reset}
			for ctx.Err() == nil {
				time.Sleep(time.Duration(random.IntN(400)) * time.Millisecond)
				set := []func(lab.Mode){proxy.Requests, proxy.Replies}[random.IntN(2)]
				set(modes[random.IntN(len(modes))])
				time.Sleep(time.Duration(random.IntN(150)) * time.Millisecond)
				set(lab.Pass)
			}
		})
	}
	since := time.Now()
	for before := -1; ; {
		h.mu.Lock()
		now := h.entered
		h.mu.Unlock()
		if now >= acquisitions || t.Failed() {
			break
		}
		require.Greater(t, now, before, "nobody gets in any more")
		before = now
		time.Sleep(2 * ttl)
	}
	stop()
	all.Wait()
	faults.Wait()
	t.Logf("%d acquisitions in %v, %d of writers; at most %d at once; %d lost", h.entered,
		time.Since(since).Round(time.Second), h.writers, h.most, h.lost)
	assert.Greater(t, h.writers, h.entered/5)
	require.Eventually(t, func() bool {
		for _, key := range server.MustDo(t, "KEYS", redisconn.LockKey("n")+"*").([]any) {
			if !strings.Contains(key.(string), ":void:") {
				return false
			}
		}
		return true
	}, 5*ttl, 10*time.Millisecond, "something is left")
}

// visit is one that comes, stays for a moment, and goes in one way or another.
func (h *house) visit(ctx context.Context, c *locker.Client, random *rand.Rand) {
	var opts []locker.Option
	g := guest{writes: random.IntN(3) == 0}
	if !g.writes {
		opts = append(opts, locker.Shared())
	}
	dies := random.IntN(40) == 0
	if dies {
		opts = append(opts, locker.NoRenew(), locker.TTL(single.MinTTL))
	}
	patience := 5 * time.Second
	if random.IntN(4) == 0 {
		patience = time.Duration(random.IntN(50)) * time.Millisecond
	}
	wait, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	lease, err := c.Lock(wait, "n", opts...)
	if err != nil {
		if !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) {
			assert.ErrorIs(h.t, err, locker.ErrUnavailable)
		}
		return
	}
	g.lease = lease
	h.enter(g)
	time.Sleep(time.Duration(random.IntN(5)) * time.Millisecond)
	if dies {
		<-lease.Done()
	}
	h.leave(g)
	_ = lease.Unlock(context.Background()) // it may be lost
}

// A Cluster moves the keys of a slot one after the other: a sharer that renews in between has lost nothing.
func TestSharerRenewsWhileItsSlotMoves(t *testing.T) {
	t.Parallel()
	c := lab.StartCluster(t)
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs()})
	t.Cleanup(func() { _ = client.Close() })
	g, err := backend(t, client, nil).Acquire(t.Context(), locker.Request{Name: "n", Owner: crand.Text(),
		TTL: time.Minute, Shared: true})
	require.NoError(t, err)
	key := redisconn.LockKey("n")
	slot := c.Nodes[0].MustDo(t, "CLUSTER", "KEYSLOT", key)
	i := slices.IndexFunc(c.Nodes, func(n *lab.Redis) bool {
		_, err := n.Do("EXISTS", key)
		return err == nil
	})
	from, to := c.Nodes[i], c.Nodes[(i+1)%len(c.Nodes)]
	id := to.MustDo(t, "CLUSTER", "MYID")
	to.MustDo(t, "CLUSTER", "SETSLOT", slot, "IMPORTING", from.MustDo(t, "CLUSTER", "MYID"))
	from.MustDo(t, "CLUSTER", "SETSLOT", slot, "MIGRATING", id)
	host, port, err := net.SplitHostPort(to.Addr())
	require.NoError(t, err)
	for _, key := range []string{key, key + ":shared"} {
		from.MustDo(t, "MIGRATE", host, port, key, 0, 1000)
		_, err := g.Hold.Renew(t.Context())
		require.NotErrorIs(t, err, locker.ErrLost, "%s has moved", key)
	}
	to.MustDo(t, "CLUSTER", "SETSLOT", slot, "NODE", id) // and the others learn of it
	require.Eventually(t, func() bool {
		_, err := g.Hold.Renew(t.Context())
		require.NotErrorIs(t, err, locker.ErrLost)
		return err == nil
	}, 10*time.Second, 20*time.Millisecond)
}
