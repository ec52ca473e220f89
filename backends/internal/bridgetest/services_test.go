package bridgetest_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/golockers/locker/backends"
	"github.com/golockers/locker/conformance"
	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/internal/redisnode"
)

// service is one lock service with its servers.
type service struct {
	addrs []string
	url   func(addrs []string) string // by way of these addresses
	ttl   time.Duration               // the least with which a fleet uses it; 0: any
	stop  func() (goOn func())        // all servers stand still
}

func (s *service) ownURL() string { return s.url(s.addrs) }

// open returns a Backend by URL.
func open(t conformance.T, rawURL string) driver.Backend {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	u, err := driver.ParseURL(rawURL)
	var b driver.Backend
	if err == nil {
		b, err = backends.Openers[u.Scheme](ctx, u, driver.Settings{})
	}
	if err != nil {
		t.Errorf("open %s: %v", u, err)
		t.FailNow()
	}
	return b
}

// services start a service each.
var services = map[string]func(t testing.TB) *service{
	"redis": redisService, "redlock": redlockService, "etcd": etcdService, "zookeeper": zookeeperService,
	"postgres": postgresService, "file": fileService,
}

// pairs are moves from one service to another.
var pairs = [][2]string{{"redis", "etcd"}, {"redis", "redlock"}, {"redlock", "zookeeper"}, {"file", "redis"},
	{"etcd", "postgres"}}

func redisService(t testing.TB) *service {
	r := lab.StartRedis(t)
	return &service{
		addrs: []string{r.Addr()},
		url:   func(addrs []string) string { return "redis://" + addrs[0] },
		stop:  func() func() { r.Pause(); return r.Resume },
	}
}

func redlockService(t testing.TB) *service {
	var nodes []*lab.Redis
	s := &service{url: func(addrs []string) string {
		return "redlock://" + strings.Join(addrs, ",") + "?fencing=on&node_timeout=300ms"
	}}
	for range 3 {
		r := lab.StartRedis(t, lab.WithAppendOnly())
		r.MustDo(t, "SET", redisnode.RunsKey, " before") // it votes from the first moment on
		nodes = append(nodes, r)
		s.addrs = append(s.addrs, r.Addr())
	}
	s.stop = func() func() {
		for _, r := range nodes[:2] {
			r.Pause()
		}
		return func() {
			for _, r := range nodes[:2] {
				r.Resume()
			}
		}
	}
	return s
}

func etcdService(t testing.TB) *service {
	c := lab.StartEtcd(t, 1)
	return &service{
		addrs: c.Addrs(),
		url:   func(addrs []string) string { return "etcd://" + strings.Join(addrs, ",") + "/locker" },
		stop:  func() func() { c.Nodes[0].Pause(); return c.Nodes[0].Resume },
	}
}

func zookeeperService(t testing.TB) *service {
	z := lab.StartZooKeeper(t)
	return &service{
		addrs: []string{z.Addr()},
		url:   func(addrs []string) string { return "zookeeper://" + addrs[0] + "/locker" },
		ttl:   3200 * time.Millisecond,
		stop:  func() func() { z.Pause(); return z.Resume },
	}
}

func postgresService(t testing.TB) *service {
	s := lab.StartPostgres(t)
	return &service{
		addrs: []string{s.Addr()},
		url:   func(addrs []string) string { return s.URL(addrs[0], "sslmode=disable") },
		stop:  func() func() { s.Pause(); return s.Resume },
	}
}

func fileService(t testing.TB) *service {
	dir := t.TempDir()
	return &service{url: func([]string) string { return "file://" + dir }}
}
