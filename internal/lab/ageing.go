package lab

import (
	"context"
	"crypto/tls"
	"fmt"
	"strings"
	"time"
)

// Ageing is one thing that months bring to a service, and that happens here within seconds.
type Ageing struct {
	Thing   string // what it is
	Service string // to what: redis, redlock, etcd, zookeeper or postgres
	Start   func(t TB) *Aged
}

// Aged is a service that is about to age.
type Aged struct {
	// URL is how clients reach it. A step may change it, for those that are started later.
	URL string
	TTL time.Duration // of the locks
	// Steps are what happens, one after the other. Each returns by what it was seen to have happened.
	Steps []func(t TB) (proof string)
}

// Ageings are all that can be brought about.
func Ageings() []Ageing {
	all := []Ageing{
		// A user's password is changed, and the old one refused. Those that come later have the new one.
		{"password", "redis", redisPassword},
		{"password", "etcd", etcdPassword},
		{"password", "postgres", postgresPassword},
		// The token that a client got for its password expires at the server: while it is used, or unused.
		{"token", "etcd", etcdToken},
		{"token-idle", "etcd", etcdIdleToken},
		// A server gets another certificate while it runs; all connections end, so that clients meet it.
		{"certificate", "redis", redisCertificate},
		{"certificate", "etcd", etcdCertificate},
		{"certificate", "zookeeper", zooCertificate},
		{"certificate", "postgres", postgresCertificate},
		// The server closes connections on which nothing was sent for a while.
		{"idle-server", "redis", redisIdle},
		{"idle-server", "postgres", postgresIdle},
		// Members go for good, one after the other; new ones with an empty disk take their places.
		{"members", "redlock", redlockMembers},
		{"members", "etcd", etcdMembers},
		{"members", "zookeeper", zooMembers},
		// Members are stopped and started again with the next version, one after the other.
		{"versions", "etcd", etcdVersions},
		{"versions", "zookeeper", zooVersions},
		// The primary is killed, and once more when another has taken over and has a replica.
		{"fail-overs", "redis", sentinelFailOvers},
		{"fail-overs", "postgres", postgresFailOvers},
		// The slots of all locks move from one server to another, and back.
		{"resharding", "redis", clusterResharding},
		// The server compacts, snapshots or rewrites what it has stored, far more often than in production.
		{"upkeep", "redis", redisUpkeep},
		{"upkeep", "etcd", etcdUpkeep},
		{"upkeep", "zookeeper", zooUpkeep},
		{"upkeep", "postgres", postgresUpkeep},
	}
	for service, start := range map[string]func(t TB) *standing{
		"redis": standRedis, "redlock": standRedlock, "etcd": standEtcd, "zookeeper": standZooKeeper,
		"postgres": standPostgres,
	} {
		// A load balancer closes idle connections at both ends; what is behind the addresses changes.
		all = append(all,
			Ageing{"idle-proxy", service, func(t TB) *Aged {
				s := start(t)
				return s.then(thrice(s.idleOnTheWay)...)
			}},
			Ageing{"address", service, func(t TB) *Aged {
				s := start(t)
				return s.then(thrice(s.moved)...)
			}})
	}
	return all
}

// standing is a service with a proxy before each of its servers.
type standing struct {
	addrs   []string
	proxies []*Proxy
	aged    *Aged
}

// stand puts a proxy before each server; url makes the URL of hosts, which are separated by commas.
func stand(t TB, ttl time.Duration, url func(hosts string) string, addrs ...string) *standing {
	t.Helper()
	s := &standing{addrs: addrs}
	var at []string
	for _, addr := range addrs {
		p := StartProxy(t, addr)
		s.proxies, at = append(s.proxies, p), append(at, p.Addr())
	}
	s.aged = &Aged{URL: url(strings.Join(at, ",")), TTL: ttl}
	return s
}

// under is a URL's making, with a scheme and what follows the hosts.
func under(scheme, after string) func(hosts string) string {
	return func(hosts string) string { return scheme + "://" + hosts + after }
}

func (s *standing) then(steps ...func(t TB) string) *Aged {
	s.aged.Steps = append(s.aged.Steps, steps...)
	return s.aged
}

// idleOnTheWay closes what has been idle for a quarter of the time between two renewals.
func (s *standing) idleOnTheWay(t TB) string {
	limit := s.aged.TTL / 12
	before := s.stats().Idle
	for _, p := range s.proxies {
		p.SetIdle(limit)
	}
	time.Sleep(2 * limit)
	return fmt.Sprintf("%d connections were closed after %v without a byte",
		until(t, func() int { return s.stats().Idle - before }), limit)
}

// moved has connections take another way to the servers; those that there are, are reset.
func (s *standing) moved(t TB) string {
	var ways []*Proxy
	for i, p := range s.proxies {
		ways = append(ways, StartProxy(t, s.addrs[i]))
		p.Retarget(ways[i].Addr())
	}
	return fmt.Sprintf("%d connections took the new way", until(t, func() (n int) {
		for _, way := range ways {
			n += way.Stats().Accepted
		}
		return n
	}))
}

// reset ends all connections.
func (s *standing) reset() {
	for _, p := range s.proxies {
		p.Retarget(p.Target())
	}
}

func (s *standing) stats() (sum Stats) {
	for _, p := range s.proxies {
		is := p.Stats()
		sum.Idle += is.Idle
		sum.Accepted += is.Accepted
	}
	return sum
}

// until waits until something has happened at least once, and returns how often.
func until(t TB, happened func() int) (n int) {
	t.Helper()
	if err := poll(func() error {
		if n = happened(); n == 0 {
			return fmt.Errorf("lab: nothing happened within %v", readyTimeout)
		}
		return nil
	}, nil, []*Process(nil)...); err != nil {
		t.Fatal(err)
	}
	return n
}

// newCertificate is the step that has a server serve a certificate with another serial number; connect
// makes a connection to it, past the proxies.
func (s *standing) newCertificate(replace func(t TB), connect func() (*tls.Conn, error)) func(t TB) string {
	return func(t TB) string {
		t.Helper()
		before := serial(t, connect)
		replace(t)
		var now string
		until(t, func() int {
			if now = serial(t, connect); now == before {
				return 0
			}
			return 1
		})
		accepted := s.stats().Accepted
		s.reset()
		back := until(t, func() int { return s.stats().Accepted - accepted })
		return fmt.Sprintf("certificate %s is served, not %s; %d connections were made anew", now, before, back)
	}
}

func serial(t TB, connect func() (*tls.Conn, error)) string {
	t.Helper()
	c, err := connect()
	if err != nil {
		t.Fatalf("lab: look at a certificate: %v", err)
	}
	defer func() { _ = c.Close() }()
	return c.ConnectionState().PeerCertificates[0].SerialNumber.String()
}

// dialTLS connects to what speaks TLS from the start.
func dialTLS(addr string, certs *Certs) func() (*tls.Conn, error) {
	return func() (*tls.Conn, error) {
		ctx, cancel := context.WithTimeout(context.Background(), doTimeout)
		defer cancel()
		c, err := (&tls.Dialer{Config: certs.ClientConfig()}).DialContext(ctx, "tcp", addr)
		if err != nil {
			return nil, err
		}
		return c.(*tls.Conn), nil
	}
}

func thrice(step func(t TB) string) []func(t TB) string { return []func(t TB) string{step, step, step} }

// versionOf waits until a server tells its version.
func versionOf(t TB, tell func() string) (version string) {
	t.Helper()
	until(t, func() int {
		version = tell()
		return len(version)
	})
	return version
}

// rolled is the step that has a member run the next version.
func rolled(p *Process, tell func() string, next func()) func(t TB) string {
	return func(t TB) string {
		before := versionOf(t, tell)
		p.Stop()
		next()
		p.Restart(t)
		if now := versionOf(t, tell); now != before {
			return fmt.Sprintf("a member runs %s instead of %s", now, before)
		}
		return ""
	}
}
