package lab

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"strings"
	"time"
)

func standRedis(t TB) *standing {
	t.Helper()
	s, _ := tlsRedis(t)
	return s
}

func tlsRedis(t TB, opts ...RedisOption) (*standing, *Redis) {
	t.Helper()
	certs := NewCerts(t)
	r := StartRedis(t, append(opts, WithTLS(certs))...)
	at := under("rediss", "?ca="+url.QueryEscape(certs.CAFile))
	return stand(t, 3*time.Second, at, r.Addr()), r
}

// redisPassword leaves connections as they are: a password is asked for on new ones alone.
func redisPassword(t TB) *Aged {
	rules := []string{"~*", "&*", "+@all"}
	r := StartRedis(t, WithUser("default", "off"), WithUser("job", append([]string{"on", ">old"}, rules...)...))
	s := stand(t, 2*time.Second, under("redis", ""), r.Addr())
	as := func(password string) string { return "redis://job:" + password + "@" + s.proxies[0].Addr() }
	s.aged.URL = as("old")
	return s.then(func(t TB) string {
		r.MustDo(t, "ACL", "SETUSER", "job", "resetpass", ">new")
		s.aged.URL = as("new")
		_, refused := r.Do("AUTH", "job", "old")
		if refused == nil {
			return ""
		}
		r.MustDo(t, "AUTH", "job", "new")
		return "the old password is refused: " + refused.Error()
	})
}

func redisCertificate(t TB) *Aged {
	s, r := tlsRedis(t)
	return s.then(s.newCertificate(func(t TB) {
		c := r.Certs()
		if err := c.Renew(); err != nil {
			t.Fatal(err)
		}
		r.MustDo(t, "CONFIG", "SET", "tls-cert-file", c.CertFile, "tls-key-file", c.KeyFile)
	}, dialTLS(r.Addr(), r.Certs())))
}

// redisIdle has a limit that is shorter than the time between two renewals.
func redisIdle(t TB) *Aged {
	s, r := tlsRedis(t, WithConfig("timeout", "1"))
	s.aged.TTL = 6 * time.Second
	step := func(t TB) string {
		c, err := r.dial(doTimeout)
		if err != nil {
			t.Fatal(err)
		}
		return endsByItself("Redis", c.raw)
	}
	return s.then(thrice(step)...)
}

// endsByItself looks how long a connection lasts on which nothing is sent.
func endsByItself(who string, c net.Conn) string {
	defer func() { _ = c.Close() }()
	began := time.Now()
	_ = c.SetReadDeadline(began.Add(readyTimeout))
	if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
		return ""
	}
	lasted := time.Since(began).Round(time.Millisecond)
	return fmt.Sprintf("%s closed a connection after %v without a byte", who, lasted)
}

// sentinelFailOvers is for two fail-overs: one more replica than is needed for the first.
func sentinelFailOvers(t TB) *Aged {
	s := StartSentinel(t, 2)
	a := &Aged{TTL: 6 * time.Second}
	a.URL = "redis+sentinel://" + strings.Join(s.Addrs(), ",") + "?master_name=" + s.Name
	next := func(t TB) string {
		old := s.Primary(t)
		return old.Addr() + " is gone, " + s.KillPrimary(t).Addr() + " is the primary"
	}
	a.Steps = []func(t TB) string{next, next}
	return a
}

func clusterResharding(t TB) *Aged {
	c := StartCluster(t)
	a := &Aged{URL: "redis+cluster://" + strings.Join(c.Addrs(), ","), TTL: 3 * time.Second}
	// All keys go to the next node, and then to the one before.
	move := func(by int) func(t TB) string {
		return func(t TB) string {
			slots := make([]map[int64]bool, len(c.Nodes))
			for i, n := range c.Nodes {
				slots[i] = map[int64]bool{}
				for _, key := range n.MustDo(t, "KEYS", "*").([]any) {
					slots[i][n.MustDo(t, "CLUSTER", "KEYSLOT", key).(int64)] = true
				}
			}
			moved := 0
			for i, n := range c.Nodes {
				for slot := range slots[i] {
					c.Move(t, slot, n, c.Nodes[(i+by+len(c.Nodes))%len(c.Nodes)])
					moved++
				}
			}
			if moved == 0 {
				return ""
			}
			return fmt.Sprintf("%d slots with keys have moved", moved)
		}
	}
	a.Steps = []func(t TB) string{move(1), move(-1)}
	return a
}

// Move moves a slot with its keys from one node to another, as redis-cli does.
func (c *Cluster) Move(t TB, slot int64, from, to *Redis) {
	t.Helper()
	fromID, toID := from.MustDo(t, "CLUSTER", "MYID"), to.MustDo(t, "CLUSTER", "MYID")
	to.MustDo(t, "CLUSTER", "SETSLOT", slot, "IMPORTING", fromID)
	from.MustDo(t, "CLUSTER", "SETSLOT", slot, "MIGRATING", toID)
	for {
		keys := from.MustDo(t, "CLUSTER", "GETKEYSINSLOT", slot, 100).([]any)
		if len(keys) == 0 {
			break
		}
		from.MustDo(t, append([]any{"MIGRATE", "127.0.0.1", to.Port(), "", 0, 5000, "KEYS"}, keys...)...)
	}
	// The one that gets it is told first, so that nobody is sent to and fro.
	for _, n := range append([]*Redis{to, from}, c.Nodes...) {
		n.MustDo(t, "CLUSTER", "SETSLOT", slot, "NODE", toID)
	}
}

// redisUpkeep has a server rewrite what it has stored, and forget the scripts that it knows.
func redisUpkeep(t TB) *Aged {
	s, r := tlsRedis(t, WithAppendOnly())
	forks := func() string { return r.Info(t, "stats")["total_forks"] }
	rewrite := func(command string) func(t TB) string {
		return func(t TB) string {
			before := forks()
			r.MustDo(t, command)
			until(t, func() int {
				now := r.Info(t, "persistence")
				if forks() == before || now["aof_rewrite_in_progress"] != "0" || now["rdb_bgsave_in_progress"] != "0" {
					return 0
				}
				return 1
			})
			r.MustDo(t, "SCRIPT", "FLUSH")
			return command + " has forked the server, and is through; the scripts are forgotten"
		}
	}
	return s.then(rewrite("BGREWRITEAOF"), rewrite("BGSAVE"), rewrite("BGREWRITEAOF"))
}

const redlockGuard = 2 * time.Second

func standRedlock(t TB) *standing {
	t.Helper()
	s, _ := threeRedlock(t)
	return s
}

func threeRedlock(t TB) (*standing, []*Redis) {
	t.Helper()
	var servers []*Redis
	for range 3 {
		servers = append(servers, StartRedis(t))
	}
	at := under("redlock", fmt.Sprintf("?fencing=on&restart_guard=%v", redlockGuard))
	return stand(t, redlockGuard, at, addrs(servers)...), servers
}

// redlockMembers has new servers vote before the next one is replaced.
func redlockMembers(t TB) *Aged {
	s, servers := threeRedlock(t)
	for i, p := range s.proxies {
		s.then(func(t TB) string {
			fresh := StartRedis(t)
			servers[i].Kill()
			p.Retarget(fresh.Addr())
			// It does not vote before, and has no lock before it is told of each with the renewal after that.
			time.Sleep(redlockGuard + time.Second + s.aged.TTL)
			return fmt.Sprintf("%s is gone, and %s is in its place, with %v connections",
				s.addrs[i], fresh.Addr(), fresh.Info(t, "clients")["connected_clients"])
		})
	}
	return s.aged
}
