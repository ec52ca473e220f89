package lab

import (
	"encoding/base64"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"time"
)

func tlsRedis(t TB, opts ...Option) (*Aged, *Redis) {
	t.Helper()
	certs := NewCerts(t)
	r := StartRedis(t, append(opts, WithTLS(certs))...)
	return stand(t, 3*time.Second, "rediss", "?ca="+url.QueryEscape(certs.CAFile), r.Addr()), r
}

// redisUpkeep has a server rewrite what it has stored, and forget the scripts that it knows.
func redisUpkeep(t TB) *Aged {
	a, r := tlsRedis(t, WithAppendOnly())
	rewrite := func(command string) func(t TB) string {
		return func(t TB) string {
			forks := r.Info(t, "stats")["total_forks"]
			r.MustDo(t, command)
			await(t, func() error {
				if r.Info(t, "stats")["total_forks"] == forks {
					return fmt.Errorf("lab: %s has not begun", command)
				}
				return r.says(map[string]string{"aof_rewrite_in_progress": "0", "rdb_bgsave_in_progress": "0"},
					"INFO", "persistence")
			}, r.Process)
			r.MustDo(t, "SCRIPT", "FLUSH")
			return command + " has forked the server, and is through; the scripts are forgotten"
		}
	}
	return a.then(rewrite("BGREWRITEAOF"), rewrite("BGSAVE"), rewrite("BGREWRITEAOF"))
}

const redlockGuard = 2 * time.Second

func threeRedlock(t TB) (*Aged, []*Redis) {
	t.Helper()
	servers := []*Redis{StartRedis(t), StartRedis(t), StartRedis(t)}
	return stand(t, redlockGuard, "redlock", fmt.Sprintf("?fencing=on&restart_guard=%v", redlockGuard),
		addrs(servers)...), servers
}

// redlockMembers has new servers vote before the next one is replaced.
func redlockMembers(t TB) *Aged {
	a, servers := threeRedlock(t)
	for i, p := range a.proxies {
		a.then(func(t TB) string {
			fresh := StartRedis(t)
			servers[i].Kill()
			p.Retarget(fresh.Addr())
			// It does not vote before, and has no lock before it is told of each with the renewal after that.
			time.Sleep(redlockGuard + time.Second + a.TTL)
			return fmt.Sprintf("%s is gone, and %s is in its place, with %v connections",
				a.addrs[i], fresh.Addr(), fresh.Info(t, "clients")["connected_clients"])
		})
	}
	return a
}

func threeEtcd(t TB, opts ...Option) (*Aged, *EtcdCluster) {
	t.Helper()
	c := StartEtcd(t, 3, opts...)
	return stand(t, 3*time.Second, "etcd", "", c.Addrs()...), c
}

// etcdUpkeep forgets all revisions but the latest, and writes the stores of the members anew.
func etcdUpkeep(t TB) *Aged {
	a, c := threeEtcd(t, WithConfig("snapshot-count", "10"))
	return a.thrice(func(t TB) string {
		n := c.Nodes[0]
		var now struct{ Header struct{ Revision string } }
		key := base64.StdEncoding.EncodeToString([]byte("lab"))
		must(t, n.post("kv/put", map[string]any{"key": key}, &now))
		must(t, n.post("kv/compaction", map[string]any{"revision": now.Header.Revision, "physical": true}, nil))
		for _, n := range c.Nodes {
			must(t, n.post("maintenance/defragment", struct{}{}, nil))
		}
		if err := n.post("kv/range", map[string]any{"key": key, "revision": "1"}, nil); err != nil {
			return "what was before is forgotten: " + err.Error()
		}
		return ""
	})
}

func threeZooKeeper(t TB, opts ...Option) (*Aged, *ZooKeeperEnsemble) {
	t.Helper()
	e := StartZooKeeperEnsemble(t, 3, opts...)
	return stand(t, 4*time.Second, "zookeeper", "/?ttl=4s", e.Addrs()...), e
}

// zooCertificate is for servers that look for a new certificate while they run.
func zooCertificate(t TB) *Aged {
	certs := NewCerts(t)
	z := StartZooKeeper(t, WithTLS(certs), WithTool(ToolNewZooJar), WithConfig("client.certReload", "true"))
	a := stand(t, 4*time.Second, "zookeepers", "/?ttl=4s&ca="+url.QueryEscape(certs.CAFile), z.TLSAddr())
	serial := func() string {
		c, err := z.dialTLS()
		must(t, err)
		defer func() { _ = c.Close() }()
		return c.ConnectionState().PeerCertificates[0].SerialNumber.String()
	}
	return a.then(func(t TB) string {
		before, now := serial(), ""
		must(t, certs.Renew(), z.install(certs))
		await(t, func() error {
			now = serial()
			return differ(map[string]string{"old certificate served": fmt.Sprint(now == before)},
				map[string]string{"old certificate served": "false"}, nil)
		}, z.Process)
		accepted := a.stats().Accepted
		a.proxies[0].Retarget(z.TLSAddr()) // all connections end
		return fmt.Sprintf("certificate %s is served, not %s; %d connections were made anew", now, before,
			until(t, func() int { return a.stats().Accepted - accepted }))
	})
}

// zooMembers has the others give each new member what it lacks.
func zooMembers(t TB) *Aged {
	a, e := threeZooKeeper(t)
	for _, z := range e.Servers {
		a.then(func(t TB) string {
			z.Kill()
			must(t, os.RemoveAll(filepath.Join(z.data(), "version-2")))
			z.Restart(t)
			mode, _ := z.Mode()
			return fmt.Sprintf("a member lost its disk, and is a %s", mode)
		})
	}
	return a
}

func zooVersions(t TB) *Aged {
	next := Need(t, ToolNewZooJar)
	a, e := threeZooKeeper(t)
	version := func(z *ZooKeeper) (version string) {
		until(t, func() int {
			version, _ = z.told("srvr", "Zookeeper version: ", "-")
			return len(version)
		})
		return version
	}
	for _, z := range e.Servers {
		a.then(func(t TB) string {
			before := version(z)
			z.Stop()
			z.jar = next
			z.Restart(t)
			if now := version(z); now != before {
				return fmt.Sprintf("a member runs %s instead of %s", now, before)
			}
			return ""
		})
	}
	return a
}

// zooUpkeep has servers take a snapshot every few requests, and has clients make them.
func zooUpkeep(t TB) *Aged {
	a, e := threeZooKeeper(t, WithConfig("snapCount", "10"))
	snapshots := func() (n int) {
		for _, z := range e.Servers {
			found, _ := filepath.Glob(filepath.Join(z.data(), "version-2", "snapshot.*"))
			n += len(found)
		}
		return n
	}
	return a.thrice(func(t TB) string {
		before := snapshots()
		more := until(t, func() int { return snapshots() - before })
		return fmt.Sprintf("%d snapshots were taken, beside %d before", more, before)
	})
}

func onePostgres(t TB, opts ...Option) (*Aged, *Postgres) {
	t.Helper()
	p := StartPostgres(t, opts...)
	a := stand(t, 3*time.Second, "postgres", "", p.Addr())
	a.URL = p.URL(a.proxies[0].Addr(), "sslmode=disable")
	return a, p
}

// postgresUpkeep writes the table anew, which shuts everybody out for a moment.
func postgresUpkeep(t TB) *Aged {
	a, p := onePostgres(t)
	const file = "SELECT pg_relation_filepath('locker_locks')"
	return a.thrice(func(t TB) string {
		before := p.Query(t, file)
		for _, statement := range []string{
			"VACUUM (FULL, FREEZE, ANALYZE) locker_locks", "REINDEX TABLE locker_locks",
			"CHECKPOINT", "SELECT pg_switch_wal()",
		} {
			p.Exec(t, statement)
		}
		if now := p.Query(t, file); now != before {
			return fmt.Sprintf("the table is in %s instead of %s", filepath.Base(now), filepath.Base(before))
		}
		return ""
	})
}
