package bridge_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/golockers/locker"
	"github.com/golockers/locker/backends"
	"github.com/golockers/locker/conformance"
	"github.com/golockers/locker/file"
	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/internal/redisconn"
	"github.com/golockers/locker/internal/znode"
)

// service is one lock service with its servers.
type service struct {
	addrs []string
	url   func(addrs []string) string // by way of these addresses
	ttl   func(check string) time.Duration
	// delete removes the lock on a name, left says what is there of it, which keeps others out.
	delete  func(t conformance.T, name string)
	left    func(t conformance.T, name string) []string
	restart func()
	stop    func() (goOn func()) // all servers stand still
}

func (s *service) ownURL() string { return s.url(s.addrs) }

// open returns a Backend by URL.
func open(t conformance.T, rawURL string, ttl time.Duration) locker.Backend {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	u, err := locker.ParseURL(rawURL)
	var b locker.Backend
	if err == nil {
		b, err = backends.Openers[u.Scheme](ctx, u, locker.Options{TTL: ttl})
	}
	if err != nil {
		t.Errorf("open %s: %v", u, err)
		t.FailNow()
	}
	return b
}

func (s *service) session(check string) time.Duration {
	if s.ttl == nil {
		return 0
	}
	return s.ttl(check)
}

// services start a service each.
var services = map[string]func(t testing.TB) *service{
	"redis":     redisService,
	"redlock":   redlockService,
	"etcd":      etcdService,
	"zookeeper": zookeeperService,
	"postgres":  postgresService,
	"file":      fileService,
}

func redisService(t testing.TB) *service {
	r := lab.StartRedis(t)
	return &service{
		addrs:  []string{r.Addr()},
		url:    func(addrs []string) string { return "redis://" + addrs[0] },
		delete: func(_ conformance.T, name string) { r.MustDo(t, "DEL", redisconn.LockKey(name)) },
		left: func(_ conformance.T, name string) []string {
			if v := r.MustDo(t, "GET", redisconn.LockKey(name)); v != nil {
				return []string{fmt.Sprintf("redis: %v", v)}
			}
			return nil
		},
		stop: func() func() { r.Pause(); return r.Resume },
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
	s.delete = func(_ conformance.T, name string) {
		for _, r := range nodes {
			r.MustDo(t, "DEL", redisconn.LockKey(name))
		}
	}
	s.left = func(_ conformance.T, name string) (left []string) {
		for i, r := range nodes {
			if v := r.MustDo(t, "GET", redisconn.LockKey(name)); v != nil {
				left = append(left, fmt.Sprintf("redlock node %d: %v", i+1, v))
			}
		}
		return left
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
	keys := func(ct conformance.T, name string) ([]string, error) {
		queue := "locker/1/lock/" + strings.NewReplacer("%", "%25", "/", "%2F").Replace(name) + "/"
		resp, err := admin.Get(ct.Context(), queue, clientv3.WithRange(queue+"~"),
			clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend))
		if err != nil {
			return nil, err
		}
		var keys []string
		for _, kv := range resp.Kvs {
			keys = append(keys, string(kv.Key))
		}
		return keys, nil
	}
	return &service{
		addrs:   c.Addrs(),
		url:     func(addrs []string) string { return "etcd://" + strings.Join(addrs, ",") + "/locker" },
		restart: func() { c.Restart(t) },
		delete: func(ct conformance.T, name string) {
			found, err := keys(ct, name)
			for i := 0; err == nil && i < holders(found, "/s"); i++ {
				_, err = admin.Delete(ct.Context(), found[i])
			}
			if err != nil {
				ct.Errorf("%v", err)
			}
		},
		left: func(ct conformance.T, name string) []string {
			found, err := keys(ct, name)
			if err != nil {
				return []string{err.Error()}
			}
			return found
		},
		stop: func() func() { c.Nodes[0].Pause(); return c.Nodes[0].Resume },
	}
}

func zookeeperService(t testing.TB) *service {
	z := lab.StartZooKeeper(t)
	nodes := func(name string, do func(c *zk.Conn, nodes []string) error) error {
		c, events, err := zk.Connect([]string{z.Addr()}, 10*time.Second, zk.WithLogger(quiet{}))
		if err != nil {
			return err
		}
		defer func() {
			c.Close()
			for range events {
			}
		}()
		dir := "/locker/" + znode.Encode(name)
		if _, err := c.Sync(dir); err != nil {
			return err
		}
		children, _, err := c.Children(dir)
		if err != nil && err != zk.ErrNoNode { //nolint:errorlint // the driver's own
			return err
		}
		children = slices.DeleteFunc(children,
			func(n string) bool { return strings.HasPrefix(n, "%") }) // tokens of another service
		place := func(n string) string { return n[max(0, len(n)-10):] }
		slices.SortFunc(children, func(a, b string) int { return strings.Compare(place(a), place(b)) })
		for i := range children {
			children[i] = dir + "/" + children[i]
		}
		return do(c, children)
	}
	return &service{
		addrs: []string{z.Addr()},
		url:   func(addrs []string) string { return "zookeeper://" + addrs[0] + "/locker?tick=200ms" },
		ttl: func(check string) time.Duration {
			if slices.Contains(lasting, check) {
				return 20 * time.Second
			}
			return 2500 * time.Millisecond
		},
		restart: func() { z.Kill(); z.Restart(t) },
		delete: func(ct conformance.T, name string) {
			err := nodes(name, func(c *zk.Conn, nodes []string) error {
				for _, path := range nodes[:holders(nodes, "-read-")] {
					if err := c.Delete(path, -1); err != nil {
						return err
					}
				}
				return nil
			})
			if err != nil {
				ct.Errorf("%v", err)
			}
		},
		left: func(_ conformance.T, name string) (left []string) {
			err := nodes(name, func(_ *zk.Conn, nodes []string) error {
				left = nodes
				return nil
			})
			if err != nil {
				return []string{err.Error()}
			}
			return left
		},
		stop: func() func() { z.Pause(); return z.Resume },
	}
}

// holders is how many at the head of a queue have the lock; a sharer's entry has mark in it.
func holders(queue []string, mark string) int {
	n := min(len(queue), 1)
	for n > 0 && n < len(queue) && strings.Contains(queue[n-1], mark) && strings.Contains(queue[n], mark) {
		n++
	}
	return n
}

// lasting are the checks in which a lock has to outlive something, or nothing has to
// end: with ZooKeeper it lasts as long as a session.
var lasting = []string{"restart", "failover", "server-crashes", "clock-jump", "tokens-restart", "names",
	"deletion", "idempotent", "owner-exact"}

type quiet struct{}

func (quiet) Printf(string, ...any) {}

func postgresService(t testing.TB) *service {
	s := lab.StartPostgres(t)
	return &service{
		addrs:   []string{s.Addr()},
		url:     func(addrs []string) string { return s.URL(addrs[0], "sslmode=disable") },
		restart: func() { s.Restart(t) },
		delete: func(_ conformance.T, name string) {
			s.Exec(t, "DELETE FROM locker_locks WHERE name = $1", []byte(name))
		},
		left: func(_ conformance.T, name string) []string {
			const held = "SELECT owner FROM locker_locks" +
				" WHERE name = $1 AND owner <> '' AND expires > clock_timestamp()"
			if owner := s.Query(t, held, []byte(name)); owner != "" {
				return []string{"postgres: " + owner}
			}
			return nil
		},
		stop: func() func() { s.Pause(); return s.Resume },
	}
}

func fileService(t testing.TB) *service {
	dir := t.TempDir()
	look, err := file.New(dir)
	require.NoError(t, err)
	t.Cleanup(func() { _ = look.Close() })
	return &service{
		url: func([]string) string { return "file://" + dir },
		delete: func(ct conformance.T, name string) {
			paths, err := filepath.Glob(dir + "/*.lock")
			for _, path := range paths {
				if text, _ := os.ReadFile(path); strings.Contains(string(text), "\nname "+strconv.Quote(name)+"\n") {
					err = errors.Join(err, os.Remove(path))
				}
			}
			if err != nil {
				ct.Errorf("%v", err)
			}
		},
		left: func(ct conformance.T, name string) []string {
			st, err := look.Inspect(ct.Context(), name)
			if err == nil && !st.Held {
				return nil
			}
			return []string{fmt.Sprintf("file: %+v %v", st, err)}
		},
	}
}
