package bridge_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/golockers/locker"
	"github.com/golockers/locker/backends"
	"github.com/golockers/locker/conformance"
	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/internal/redisconn"
)

// service is one lock service with its servers.
type service struct {
	addrs []string
	url   func(addrs []string) string // by way of these addresses
	ttl   time.Duration               // the least with which a fleet uses it; 0: any
	stop  func() (goOn func())        // all servers stand still
	// For the suite: delete removes the lock on a name, left says what is there of it, which keeps others out.
	delete func(t conformance.T, name string)
	left   func(t conformance.T, name string) []string
}

func (s *service) ownURL() string { return s.url(s.addrs) }

// open returns a Backend by URL.
func open(t conformance.T, rawURL string) locker.Backend {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	u, err := locker.ParseURL(rawURL)
	var b locker.Backend
	if err == nil {
		b, err = backends.Openers[u.Scheme](ctx, u, locker.Options{})
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

func redisService(t testing.TB) *service {
	r := lab.StartRedis(t)
	return &service{
		addrs:  []string{r.Addr()},
		url:    func(addrs []string) string { return "redis://" + addrs[0] },
		stop:   func() func() { r.Pause(); return r.Resume },
		delete: func(_ conformance.T, name string) { r.MustDo(t, "DEL", redisconn.LockKey(name)) },
		left: func(_ conformance.T, name string) []string {
			if v := r.MustDo(t, "GET", redisconn.LockKey(name)); v != nil {
				return []string{fmt.Sprintf("redis: %v", v)}
			}
			return nil
		},
	}
}

func redlockService(t testing.TB) *service {
	var nodes []*lab.Redis
	s := &service{url: func(addrs []string) string {
		return "redlock://" + strings.Join(addrs, ",") + "?fencing=on&node_timeout=300ms"
	}}
	for range 3 {
		r := lab.StartRedis(t, lab.WithAppendOnly())
		r.MustDo(t, "SET", redisconn.RunsKey, " before") // it votes from the first moment on
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
	admin, err := clientv3.New(clientv3.Config{Endpoints: c.Addrs(), DialTimeout: 10 * time.Second})
	require.NoError(t, err)
	t.Cleanup(func() { _ = admin.Close() })
	keys := func(ct conformance.T, name string) (keys []string, err error) {
		queue := "locker/1/lock/" + strings.NewReplacer("%", "%25", "/", "%2F").Replace(name) + "/"
		resp, err := admin.Get(ct.Context(), queue, clientv3.WithRange(queue+"~"),
			clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend))
		if err != nil {
			return []string{err.Error()}, err
		}
		for _, kv := range resp.Kvs {
			keys = append(keys, string(kv.Key))
		}
		return keys, nil
	}
	return &service{
		addrs: c.Addrs(),
		url:   func(addrs []string) string { return "etcd://" + strings.Join(addrs, ",") + "/locker" },
		stop:  func() func() { c.Nodes[0].Pause(); return c.Nodes[0].Resume },
		delete: func(ct conformance.T, name string) {
			found, err := keys(ct, name)
			shares := func(i int) bool { return strings.Contains(found[i], "/s") }
			for i := 0; err == nil && i < len(found) && (i == 0 || shares(0) && shares(i)); i++ {
				_, err = admin.Delete(ct.Context(), found[i])
			}
			if err != nil {
				ct.Errorf("%v", err)
			}
		},
		left: func(ct conformance.T, name string) []string {
			found, _ := keys(ct, name)
			return found
		},
	}
}

func zookeeperService(t testing.TB) *service {
	z := lab.StartZooKeeper(t)
	return &service{
		addrs: []string{z.Addr()},
		url:   func(addrs []string) string { return "zookeeper://" + addrs[0] + "/locker?tick=200ms" },
		ttl:   2500 * time.Millisecond,
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
