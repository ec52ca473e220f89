package backends_test

import (
	"strings"
	"testing"

	"github.com/golockers/locker/backends"
	"github.com/golockers/locker/internal/campaign"
	"github.com/golockers/locker/internal/lab"
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
			func(addrs []string) string { return "zookeeper://" + addrs[0] + "?ttl=2s&tick=200ms" },
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

// What months bring, within minutes: see [campaign.Ages].
func TestAgeing(t *testing.T) {
	lab.NeedProve(t)
	campaign.Ages(t, backends.Openers)
}
