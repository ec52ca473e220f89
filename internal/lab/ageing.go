package lab

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
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

	addrs   []string
	proxies []*Proxy // one before each server
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
	for service, start := range map[string]func(t TB) *Aged{
		"redis":     func(t TB) *Aged { a, _ := tlsRedis(t); return a },
		"redlock":   func(t TB) *Aged { a, _ := threeRedlock(t); return a },
		"etcd":      func(t TB) *Aged { a, _ := threeEtcd(t); return a },
		"zookeeper": func(t TB) *Aged { a, _ := threeZooKeeper(t); return a },
		"postgres":  func(t TB) *Aged { a, _ := onePostgres(t); return a },
	} {
		// A load balancer closes idle connections at both ends; what is behind the addresses changes.
		all = append(all,
			Ageing{"idle-proxy", service, func(t TB) *Aged { a := start(t); return a.thrice(a.idleOnTheWay) }},
			Ageing{"address", service, func(t TB) *Aged { a := start(t); return a.thrice(a.moved) }})
	}
	return all
}

// stand puts a proxy before each server, at whose addresses clients reach the service by a URL with a scheme and
// what follows the hosts.
func stand(t TB, ttl time.Duration, scheme, after string, addrs ...string) *Aged {
	t.Helper()
	a := &Aged{TTL: ttl, addrs: addrs}
	var at []string
	for _, addr := range addrs {
		p := StartProxy(t, addr)
		a.proxies, at = append(a.proxies, p), append(at, p.Addr())
	}
	a.URL = scheme + "://" + strings.Join(at, ",") + after
	return a
}

func (a *Aged) then(steps ...func(t TB) string) *Aged {
	a.Steps = append(a.Steps, steps...)
	return a
}

func (a *Aged) thrice(step func(t TB) string) *Aged { return a.then(step, step, step) }

// idleOnTheWay closes what has been idle for a quarter of the time between two renewals.
func (a *Aged) idleOnTheWay(t TB) string {
	limit := a.TTL / 12
	before := a.stats().Idle
	for _, p := range a.proxies {
		p.SetIdle(limit)
	}
	time.Sleep(2 * limit)
	return fmt.Sprintf("%d connections were closed after %v without a byte",
		until(t, func() int { return a.stats().Idle - before }), limit)
}

// moved has connections take another way to the servers; those that there are, are reset.
func (a *Aged) moved(t TB) string {
	var ways []*Proxy
	for i, p := range a.proxies {
		ways = append(ways, StartProxy(t, a.addrs[i]))
		p.Retarget(ways[i].Addr())
	}
	return fmt.Sprintf("%d connections took the new way", until(t, func() (n int) {
		for _, way := range ways {
			n += way.Stats().Accepted
		}
		return n
	}))
}

func (a *Aged) stats() (sum Stats) {
	for _, p := range a.proxies {
		is := p.Stats()
		sum.Idle += is.Idle
		sum.Accepted += is.Accepted
	}
	return sum
}

// until waits until something has happened at least once, and returns how often.
func until(t TB, happened func() int) (n int) {
	t.Helper()
	await(t, func() error {
		if n = happened(); n == 0 {
			return fmt.Errorf("lab: nothing happened within %v", readyTimeout)
		}
		return nil
	})
	return n
}

// refused is the proof that something is refused that was not before.
func refused(what string, err error) string {
	if err == nil {
		return ""
	}
	return what + " is refused: " + err.Error()
}

// must ends the test where the lab itself fails.
func must(t TB, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// certified is a service whose server gets a certificate with another serial number; connect makes a connection to
// it, past the proxies, and all others are reset then.
func (a *Aged) certified(certs *Certs, reload func(t TB), connect func() (*tls.Conn, error)) *Aged {
	serial := func(t TB) string {
		t.Helper()
		c, err := connect()
		must(t, err)
		defer func() { _ = c.Close() }()
		return c.ConnectionState().PeerCertificates[0].SerialNumber.String()
	}
	return a.then(func(t TB) string {
		t.Helper()
		before, now := serial(t), ""
		must(t, certs.Renew())
		reload(t)
		await(t, func() error {
			if now = serial(t); now == before {
				return fmt.Errorf("lab: certificate %s is still served", before)
			}
			return nil
		})
		accepted := a.stats().Accepted
		for _, p := range a.proxies {
			p.Retarget(p.Target())
		}
		return fmt.Sprintf("certificate %s is served, not %s; %d connections were made anew", now, before,
			until(t, func() int { return a.stats().Accepted - accepted }))
	})
}

// endsByItself looks how long a connection lasts on which nothing is sent.
func endsByItself(c net.Conn) string {
	defer func() { _ = c.Close() }()
	began := time.Now()
	_ = c.SetReadDeadline(began.Add(readyTimeout))
	if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
		return ""
	}
	return fmt.Sprintf("a connection was closed after %v without a byte", time.Since(began).Round(time.Millisecond))
}

// rolled is the step that has a member run the next version.
func rolled(p *Process, tell func() string, next func()) func(t TB) string {
	version := func(t TB) (version string) {
		t.Helper()
		until(t, func() int { version = tell(); return len(version) })
		return version
	}
	return func(t TB) string {
		before := version(t)
		p.Stop()
		next()
		p.Restart(t)
		if now := version(t); now != before {
			return fmt.Sprintf("a member runs %s instead of %s", now, before)
		}
		return ""
	}
}
