package fencingproof_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/fencing"
	"github.com/golockers/locker/internal/lab"
)

// services are the lock services. Each is started for its test.
var services = map[string]func(t *testing.T) (url string){
	"single": func(t *testing.T) string { return "redis://" + lab.StartRedis(t).Addr() + "?ttl=1s" },
	"redlock": func(t *testing.T) string {
		var nodes []string
		for range 5 {
			nodes = append(nodes, lab.StartRedis(t).Addr())
		}
		// The restart guard would keep new servers out for one TTL.
		return "redlock://" + strings.Join(nodes, ",") + "?ttl=1s&fencing=on&restart_guard=off"
	},
	"etcd":      func(t *testing.T) string { return "etcd://" + lab.StartEtcd(t, 1).Nodes[0].Addr() + "?ttl=2s" },
	"zookeeper": func(t *testing.T) string { return "zookeeper://" + lab.StartZooKeeper(t).Addr() + "?ttl=2s" },
}

// As many holders at once as a small machine can start, and several rounds.
const atOnce, rounds = 8, 3

func TestAHolderPausedBetweenItsLookAndItsWrite(t *testing.T) {
	lab.NeedPause(t)
	for service, start := range services {
		t.Run(service, func(t *testing.T) {
			url, store := start(t), lab.StartRedis(t).Addr()
			r := startResource(t)
			p := &pauses{access: newAccess(t), url: url, second: open(t, url, nil), landed: map[string]int{}}
			p.things = func(name string) []thing {
				return []thing{r.thing(name), storeThing(store, name)}
			}
			for round := range rounds {
				p.together(t, fmt.Sprintf("%s-%d", service, round))
			}
			assert.Equal(t, atOnce*rounds, p.paused)
			for _, th := range p.things("") {
				plain, guarded := p.landed[th.kind], p.landed[th.kind+" guarded"]
				t.Logf("%d holders of locks in %s were paused between look and write; of their writes to "+
					"%s landed over the newer one: %d without a guard, %d with",
					p.paused, service, th.kind, plain, guarded)
				assert.Equal(t, p.paused, plain, "a lock alone prevents none: or this test proves nothing")
				assert.Zero(t, guarded)
			}
		})
	}
}

// pauses counts writes of paused holders that landed over the newer ones.
type pauses struct {
	*access
	url    string
	second *locker.Client
	things func(name string) []thing

	paused int
	landed map[string]int
}

// together does it with several holders, each with a lock of its own, all
// stopped at the same time, so that their leases run out together.
func (p *pauses) together(t *testing.T, prefix string) {
	var holders []*holder
	for i := range atOnce {
		name := fmt.Sprintf("%s-%d", prefix, i)
		holders = append(holders, startHolder(t, p.url, name, "first", descriptions(p.things(name))...))
	}
	for _, h := range holders {
		h.stopBeforeWrite(t)
	}
	for _, h := range holders {
		p.one(t, h)
		h.Kill()
	}
}

func (p *pauses) one(t *testing.T, h *holder) {
	lease := lock(t, p.second, h.name) // waits until the first one's time is over
	token, err := fencing.Of(lease)
	require.NoError(t, err)
	require.Greater(t, token, h.token)
	all := descriptions(p.things(h.name))
	// Every other one has not written yet when the first goes on: it has only raised
	// the marks, and read.
	raisedOnly := p.paused%2 == 1
	before := "second"
	if raisedOnly {
		before = ""
	}
	for i, description := range all {
		if behindGuard := i%2 == 1; behindGuard && raisedOnly {
			require.NoError(t, p.raise(token, description))
			require.Empty(t, p.read(description))
			continue
		}
		require.NoError(t, p.write(token, description, "second"))
		require.Equal(t, "second", p.read(description))
	}

	outcomes, over := h.goOn(t, len(all))
	p.paused++
	for i, th := range p.things(h.name) {
		require.NoError(t, outcomes[2*i], "%s without a guard", th.kind)
		if p.read(th.plain) == "first" {
			p.landed[th.kind]++
		}
		if p.read(th.guarded) != before {
			p.landed[th.kind+" guarded"]++
		}
		assert.Equal(t, &fencing.StaleError{Resource: h.name, Token: h.token, Mark: token}, outcomes[2*i+1],
			"the holder is told, with both numbers")
		require.NoError(t, p.write(token, th.guarded, "second again"), "who holds the lock goes on")
	}
	assert.Contains(t, over, locker.ErrLost.Error(), "now that it looks, it sees it")
	_ = lease.Unlock(t.Context())
}
