package single_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/conformance"
	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/internal/redisnode"
	"github.com/golockers/locker/single"
)

// deployment is a kind of "one Redis" under test.
type deployment struct {
	client func(dial dialer) redis.UniversalClient
	// node is the server that a key lives on now.
	node func(t testing.TB, key string) *lab.Redis
	url  string
}

// dialer replaces the way to a server. nil: the driver's own.
type dialer func(ctx context.Context, network, addr string) (net.Conn, error)

// reached are the checks on what depends on how a server is reached: connections,
// users, slots, wake-ups, what a driver does when the network fails. One server and
// a plain connection pass all checks; scripts, TTLs and the engine are the same in
// the other deployments.
var reached = []string{
	"claims", "url", "wake-up", "nothing-piles-up", "exclusion", "deletion", "names", "prompt",
	"close-given", "histories",
}

func TestConformance(t *testing.T) {
	t.Run("standalone", func(t *testing.T) {
		s := lab.StartRedis(t)
		conform(t, deployment{
			client: func(d dialer) redis.UniversalClient {
				return redis.NewClient(&redis.Options{Addr: s.Addr(), Dialer: d, MaxRetries: -1})
			},
			node: func(testing.TB, string) *lab.Redis { return s },
			url:  "redis://" + s.Addr() + "/0",
		})
	})
}

func TestProveConformance(t *testing.T) {
	lab.NeedProve(t)
	t.Run("unix socket and ACL user", func(t *testing.T) {
		// The least rights, and that for List.
		socket := filepath.Join(t.TempDir(), "s")
		s := lab.StartRedis(t, lab.WithConfig("unixsocket", socket), lab.WithUser("default", "off"),
			lab.WithUser("locker", append(strings.Fields(leastRights(t)), "on", ">p@ss/word", "+scan")...))
		conform(t, deployment{
			client: func(d dialer) redis.UniversalClient {
				return redis.NewClient(&redis.Options{Network: "unix", Addr: socket, Username: "locker",
					Password: "p@ss/word", Dialer: d})
			},
			node: func(testing.TB, string) *lab.Redis { return s },
			url:  "unix://locker:p%40ss%2Fword@" + socket,
		}, reached...)
	})
	t.Run("TLS", func(t *testing.T) {
		certs := lab.NewCerts(t)
		s := lab.StartRedis(t, lab.WithTLS(certs), lab.WithPassword("sesame"))
		conform(t, deployment{
			client: func(d dialer) redis.UniversalClient {
				return redis.NewClient(&redis.Options{Addr: s.Addr(), Password: "sesame",
					TLSConfig: certs.ClientConfig(), Dialer: overTLS(d, certs)})
			},
			node: func(testing.TB, string) *lab.Redis { return s },
			url:  "rediss://:sesame@" + s.Addr() + "?ca=" + url.QueryEscape(certs.CAFile),
		}, reached...)
	})
	t.Run("Sentinel", func(t *testing.T) {
		s := lab.StartSentinel(t, 1)
		conform(t, deployment{
			client: func(d dialer) redis.UniversalClient {
				return redis.NewFailoverClient(&redis.FailoverOptions{MasterName: s.Name, SentinelAddrs: s.Addrs(),
					Dialer: d})
			},
			node: func(_ testing.TB, _ string) *lab.Redis { return s.Servers[0] },
			url:  "redis+sentinel://" + strings.Join(s.Addrs(), ",") + "?master_name=" + s.Name,
		}, reached...)
	})
	t.Run("Cluster", func(t *testing.T) {
		s := lab.StartCluster(t)
		conform(t, deployment{
			client: func(d dialer) redis.UniversalClient {
				return redis.NewClusterClient(&redis.ClusterOptions{Addrs: s.Addrs(), Dialer: d})
			},
			node: func(t testing.TB, key string) *lab.Redis { return s.NodeOf(t, key) },
			url:  "redis+cluster://" + strings.Join(s.Addrs(), ","),
		}, reached...)
	})
}

// conform runs the suite, or some of its checks.
func conform(t *testing.T, d deployment, only ...string) {
	opener := driver.Openers{}
	for _, scheme := range []string{"redis", "rediss", "unix", "redis+sentinel", "redis+cluster"} {
		opener[scheme] = single.Open
	}
	on := func(ct conformance.T, client redis.UniversalClient) driver.Backend {
		b, err := single.New(client, nil)
		if err != nil {
			ct.Errorf("single.New: %v", err)
			ct.FailNow()
		}
		ct.Cleanup(func() { _ = client.Close() })
		return b
	}
	connect := func(ct conformance.T, dial dialer) driver.Backend { return on(ct, d.client(dial)) }
	h := conformance.Harness{
		TTL: 600 * time.Millisecond,
		New: func(ct conformance.T) driver.Backend { return connect(ct, nil) },
		Pair: func(ct conformance.T) (driver.Backend, driver.Backend) {
			client := d.client(nil)
			return on(ct, client), on(ct, client)
		},
		Cut: func(ct conformance.T) (driver.Backend, conformance.Fault) {
			w := lab.StartProxy(ct)
			return connect(ct, w.Dial), w
		},
		Delete: func(_ conformance.T, name string) {
			key := redisnode.LockKey(name)
			d.node(t, key).MustDo(t, "DEL", key)
		},
		Left: func(_ conformance.T, name string) []string {
			key := redisnode.LockKey(name)
			node := d.node(t, key)
			if value := node.MustDo(t, "GET", key); value != nil {
				return []string{fmt.Sprintf("%s = %v", key, value)}
			}
			if sharers, _ := node.MustDo(t, "ZRANGE", key+":shared", 0, -1).([]any); len(sharers) > 0 {
				return []string{fmt.Sprintf("%s:shared = %v", key, sharers)}
			}
			return nil
		},
		Names: []string{"a}", "{a", "a}:fence", "a:fence", "a:wait", "a:shared", "a}:shared",
			"%", "%7B", "{", "}", "{}", "locker:2:{a}"},
		URL:  d.url,
		Open: conformance.OpenWith(opener),
		// The driver's Close ends neither the connections that it is making, which it
		// tries for some seconds, nor its questions to Sentinels and those who wait
		// for them.
		KnownGoroutines: append([]string{
			"github.com/redis/go-redis/v9/internal/pool.(*ConnPool).queuedNewConn.func2",
			"github.com/redis/go-redis/v9.(*sentinelFailover).MasterAddr",
			"github.com/redis/go-redis/v9.(*sentinelFailover).MasterAddr.func1",
		}, lab.LeftBySentinels...),
	}
	if len(only) > 0 {
		conformance.RunOnly(t, h, only...)
	} else {
		conformance.Run(t, h)
	}
}

// overTLS makes TLS connections over d, as the driver does without a dialer.
func overTLS(d dialer, certs *lab.Certs) dialer {
	if d == nil {
		return nil
	}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		raw, err := d(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		config := certs.ClientConfig()
		config.ServerName, _, err = net.SplitHostPort(addr)
		if err != nil {
			return nil, err
		}
		conn := tls.Client(raw, config)
		if err := conn.HandshakeContext(ctx); err != nil {
			_ = raw.Close()
			return nil, err
		}
		return conn, nil
	}
}

// leastRights returns the ACL rules that the package documentation names, so
// that they stay true.
func leastRights(t *testing.T) string {
	t.Helper()
	doc, err := os.ReadFile("doc.go")
	require.NoError(t, err)
	_, rules, ok := strings.Cut(string(doc), "ACL SETUSER locker on >password")
	require.True(t, ok)
	rules, _, ok = strings.Cut(rules, "\n//\n")
	require.True(t, ok)
	return strings.ReplaceAll(rules, "//", "")
}
