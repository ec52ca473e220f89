package fencingproof_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/fencing"
	"github.com/golockers/locker/internal/testserver"
)

// services are the lock services, each started for the test.
var services = []struct {
	name  string
	start func(t *testing.T) (url string)
}{
	{"single", func(t *testing.T) string {
		return "redis://" + testserver.StartRedis(t).Addr() + "?ttl=1s"
	}},
	{"redlock", func(t *testing.T) string {
		var addrs []string
		for range 5 {
			addrs = append(addrs, testserver.StartRedis(t).Addr())
		}
		// The restart guard would keep new servers out for one TTL.
		return "redlock://" + strings.Join(addrs, ",") + "?ttl=1s&fencing=on&restart_guard=off"
	}},
	{"etcd", func(t *testing.T) string {
		return "etcd://" + testserver.StartEtcd(t, 1).Nodes[0].Addr() + "?ttl=2s"
	}},
	{"zookeeper", func(t *testing.T) string {
		return "zookeeper://" + testserver.StartZooKeeper(t).Addr() + "?ttl=2s"
	}},
}

// At once are as many holders as a small machine can start, and so much more
// often is it done.
const atOnce, rounds = 8, 3

func TestAHolderPausedBetweenItsLookAndItsWrite(t *testing.T) {
	testserver.NeedPause(t)
	for _, service := range services {
		t.Run(service.name, func(t *testing.T) {
			url := service.start(t)
			r := startResource(t)
			second := open(t, url, nil)
			var count tally
			for round := range rounds {
				pauseMany(t, r, url, second, fmt.Sprintf("%s-%d", service.name, round), &count)
			}
			t.Logf("%s: %d holders were paused between look and write; their writes landed over the newer one: %d without a guard, %d with",
				service.name, count.paused, count.plain, count.guarded)
			assert.Equal(t, atOnce*rounds, count.paused)
			assert.Equal(t, count.paused, count.plain, "a lock alone prevents none: or this test proves nothing")
			assert.Zero(t, count.guarded)
		})
	}
}

// tally counts writes of paused holders that landed over the newer ones.
type tally struct{ paused, plain, guarded int }

// pauseMany does it with several holders, each with a lock of its own, all
// stopped at the same time, so that their leases run out together.
func pauseMany(t *testing.T, r *resource, url string, second *locker.Client, prefix string, count *tally) {
	var holders []*holder
	for i := range atOnce {
		name := fmt.Sprintf("%s-%d", prefix, i)
		holders = append(holders, startHolder(t, url, name, "first", r.plain(name), r.guarded(name)))
	}
	for _, h := range holders {
		h.stopBeforeWrite(t)
	}
	for _, h := range holders {
		lease := lock(t, second, h.name)
		token, err := fencing.Of(lease)
		require.NoError(t, err)
		require.Greater(t, token, h.token)
		ctx := fencing.NewContext(t.Context(), token)
		for _, description := range []string{r.plain(h.name), r.guarded(h.name)} {
			require.NoError(t, writeTo(ctx, description, "second"))
			require.Equal(t, "second", r.read(description))
		}

		outcomes, over := h.goOn(t, 2)
		count.paused++
		assert.NoError(t, outcomes[0])
		if r.read(r.plain(h.name)) == "first" {
			count.plain++
		}
		if r.read(r.guarded(h.name)) != "second" {
			count.guarded++
		}
		assert.Equal(t, &fencing.StaleError{Resource: h.name, Token: h.token, Mark: token}, outcomes[1], "the holder is told, with both numbers")
		assert.Contains(t, over, locker.ErrLost.Error(), "now that it looks, it sees it")

		require.NoError(t, writeTo(ctx, r.guarded(h.name), "second again"), "who holds the lock goes on")
		_ = lease.Unlock(t.Context())
		h.Kill()
	}
}

func writeTo(ctx context.Context, description, value string) error {
	target, err := openTarget(description)
	if err != nil {
		return err
	}
	defer target.close()
	return target.write(ctx, value)
}
