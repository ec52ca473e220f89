package backends_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/backends"
	"github.com/golockers/locker/internal/campaign"
	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/internal/locktest"
)

// Readers and writers on every service whose network fails again and again: see [campaign.Run].
func TestProveCampaigns(t *testing.T) {
	lab.NeedProve(t)
	redis := func(t *testing.T) []string { return []string{lab.StartRedis(t).Addr()} }
	node := func(t *testing.T) []string { return []string{lab.StartEtcd(t, 1).Nodes[0].Addr()} }
	for name, service := range map[string]struct {
		start func(t *testing.T) (addrs []string)
		url   func(addrs []string) string
	}{
		"single": {redis, func(addrs []string) string { return "redis://" + addrs[0] }},
		"redlock": {
			func(t *testing.T) (addrs []string) {
				for range 3 {
					addrs = append(addrs, redis(t)...)
				}
				return addrs
			},
			func(addrs []string) string {
				return "redlock://" + strings.Join(addrs, ",") + "?restart_guard=off&fencing=on"
			},
		},
		"postgres": {
			func(t *testing.T) []string { return []string{lab.StartPostgres(t).Addr()} },
			func(addrs []string) string { return new(lab.Postgres).URL(addrs[0]) },
		},
		"etcd": {node, func(addrs []string) string { return "etcd://" + addrs[0] }},
		"zookeeper": {
			func(t *testing.T) []string { return []string{lab.StartZooKeeper(t).Addr()} },
			func(addrs []string) string { return "zookeeper://" + addrs[0] + "?ttl=3s" },
		},
		"bridge": {
			func(t *testing.T) []string { return append(redis(t), node(t)...) },
			func(addrs []string) string { return "redis://" + addrs[0] + " etcd://" + addrs[1] },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			campaign.Run(t, backends.Openers, service.start(t), service.url)
		})
	}
}

// What months bring to services, within minutes: each step is one of it. Nobody overlaps and everybody goes on, and
// where no server fails no lease is lost, nor does a call fail. More of it is among the tests of each backend.
func TestAgeing(t *testing.T) {
	lab.NeedProve(t)
	ensemble := func(t *testing.T) (e *lab.ZooKeeperEnsemble, url string) {
		// It takes a snapshot every few requests, too.
		e = lab.StartZooKeeperEnsemble(t, 3, lab.WithConfig("snapCount", "10"))
		return e, "zookeeper://" + strings.Join(e.Addrs(), ",") + "/?ttl=4s"
	}
	for name, service := range map[string]struct {
		ttl    time.Duration
		gentle bool // no server fails
		start  func(t *testing.T) (url string, steps []func())
	}{
		// Members go for good; new ones without any data take their places, and vote before the next one goes.
		"redlock/members": {2 * time.Second, false, func(t *testing.T) (url string, steps []func()) {
			const guard = 2 * time.Second
			var at []string
			for range 3 {
				server := lab.StartRedis(t)
				p := lab.StartProxy(t, server.Addr())
				at = append(at, p.Addr())
				steps = append(steps, func() {
					server.Kill()
					p.Retarget(lab.StartRedis(t).Addr())
					time.Sleep(guard + 3*time.Second) // it is told of each lock with the renewal after that
				})
			}
			return fmt.Sprintf("redlock://%s?fencing=on&restart_guard=%v", strings.Join(at, ","), guard), steps
		}},
		"zookeeper/members": {4 * time.Second, false, func(t *testing.T) (url string, steps []func()) {
			e, url := ensemble(t)
			for _, z := range e.Servers {
				steps = append(steps, func() {
					z.Kill()
					require.NoError(t, os.RemoveAll(filepath.Join(z.Dir(), "data", "version-2")))
					z.Restart(t)
				})
			}
			return url, steps
		}},
		"zookeeper/versions": {4 * time.Second, false, func(t *testing.T) (url string, steps []func()) {
			e, url := ensemble(t)
			for _, z := range e.Servers {
				steps = append(steps, func() { z.Upgrade(t, lab.ToolNewZooJar) })
			}
			return url, steps
		}},
		// The table is written anew, which shuts everybody out for a moment.
		"postgres/upkeep": {6 * time.Second, true, func(t *testing.T) (url string, steps []func()) {
			s := lab.StartPostgres(t)
			step := func() { s.Exec(t, "VACUUM (FULL, FREEZE, ANALYZE) locker_locks") }
			return s.URL(s.Addr(), "sslmode=disable"), []func(){step, step, step}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, steps := service.start(t)
			var clients []*locker.Client
			for range 4 {
				c, err := backends.Open(t.Context(), url, &locker.Options{TTL: service.ttl})
				require.NoError(t, err)
				t.Cleanup(func() { _ = c.Close() })
				clients = append(clients, c)
			}
			held := locktest.Lock(t, clients[0], "held")
			c := campaign.Begin(t, campaign.Names(1), false, 1, clients...)
			for _, step := range steps {
				c.GoesOn(10, time.Minute)
				step()
			}
			c.GoesOn(10, time.Minute)
			if service.gentle {
				assert.NoError(t, held.Err())
				assert.Zero(t, c.Lost(), "leases lost")
				assert.Zero(t, c.Failed(), "calls that failed, and not because their time was over")
			}
			_ = held.Unlock(t.Context())
			overlaps, _ := c.End(clients[0])
			assert.Empty(t, overlaps)
		})
	}
}
