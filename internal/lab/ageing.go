package lab

import (
	"errors"
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
	URL string        // how clients reach it
	TTL time.Duration // of the locks
	// Steps are what happens, one after the other. Each returns by what it was seen to have happened.
	Steps []func(t TB) (proof string)

	addrs   []string
	proxies []*Proxy // one before each server
}

// Ageings are those that happen to more than one service, or that no test of a backend brings about by itself.
func Ageings() []Ageing {
	all := []Ageing{
		// The server gets another certificate while it runs; all connections end, so that clients meet it.
		{"certificate", "zookeeper", zooCertificate},
		// Members go for good, one after the other; new ones with an empty disk take their places.
		{"members", "redlock", redlockMembers},
		{"members", "zookeeper", zooMembers},
		// Members are stopped and started again with the next version, one after the other.
		{"versions", "zookeeper", zooVersions},
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

// idleOnTheWay closes what has been idle for a third of the time between two renewals.
func (a *Aged) idleOnTheWay(t TB) string {
	limit := a.TTL / 9
	if strings.HasPrefix(a.URL, "zookeeper") {
		limit = a.TTL / 12 // its sessions are not silent for longer
	}
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
			return errors.New("lab: nothing happened")
		}
		return nil
	})
	return n
}

// must ends the test where the lab itself fails.
func must(t TB, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}
