package lab

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

func tlsRedis(t TB, opts ...Option) (*Aged, *Redis) {
	t.Helper()
	certs := NewCerts(t)
	r := StartRedis(t, append(opts, WithTLS(certs))...)
	return stand(t, 3*time.Second, "rediss", "?ca="+url.QueryEscape(certs.CAFile), r.Addr()), r
}

// redisPassword leaves connections as they are: a password is asked for on new ones alone.
func redisPassword(t TB) *Aged {
	r := StartRedis(t, WithUser("default", "off"), WithUser("job", "on", ">old", "~*", "&*", "+@all"))
	a := stand(t, 2*time.Second, "redis", "", r.Addr())
	as := func(password string) string { return "redis://job:" + password + "@" + a.proxies[0].Addr() }
	a.URL = as("old")
	return a.then(func(t TB) string {
		r.MustDo(t, "ACL", "SETUSER", "job", "resetpass", ">new")
		r.MustDo(t, "AUTH", "job", "new")
		a.URL = as("new")
		_, err := r.Do("AUTH", "job", "old")
		return refused("the old password", err)
	})
}

func redisCertificate(t TB) *Aged {
	a, r := tlsRedis(t)
	c := r.Certs()
	return a.certified(c, func(t TB) {
		r.MustDo(t, "CONFIG", "SET", "tls-cert-file", c.CertFile, "tls-key-file", c.KeyFile)
	}, dialTLS(r.Addr(), c, doTimeout))
}

// redisIdle has a limit that is shorter than the time between two renewals.
func redisIdle(t TB) *Aged {
	a, r := tlsRedis(t, WithConfig("timeout", "1"))
	a.TTL = 6 * time.Second
	return a.thrice(func(t TB) string {
		c, err := r.dial(doTimeout)
		must(t, err)
		return endsByItself(c.raw)
	})
}

// sentinelFailOvers is for two fail-overs: one more replica than is needed for the first.
func sentinelFailOvers(t TB) *Aged {
	s := StartSentinel(t, 2)
	a := &Aged{TTL: 6 * time.Second,
		URL: "redis+sentinel://" + strings.Join(s.Addrs(), ",") + "?master_name=" + s.Name}
	next := func(t TB) string {
		old := s.Primary(t)
		return old.Addr() + " is gone, " + s.KillPrimary(t).Addr() + " is the primary"
	}
	return a.then(next, next)
}

// clusterResharding has all keys go to the next node, and then to the one before.
func clusterResharding(t TB) *Aged {
	c := StartCluster(t)
	a := &Aged{URL: "redis+cluster://" + strings.Join(c.Addrs(), ","), TTL: 3 * time.Second}
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
	return a.then(move(1), move(-1))
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
	if c.certs != nil {
		return stand(t, 3*time.Second, "etcds", "?ca="+url.QueryEscape(c.certs.CAFile), c.Addrs()...), c
	}
	return stand(t, 3*time.Second, "etcd", "", c.Addrs()...), c
}

const allKeys = "AA==" // a zero byte

// withLogin is etcd with authentication on, and with one user for clients.
func withLogin(t TB, opts ...Option) (*Aged, *Etcd) {
	t.Helper()
	// Checking a password is to take a while; here it must not keep all others from a processor.
	a, c := threeEtcd(t, append(opts, WithConfig("bcrypt-cost", "4"))...)
	for _, call := range []struct {
		path string
		body map[string]any
	}{
		{"role/add", map[string]any{"name": "root"}},
		{"user/add", map[string]any{"name": "root", "password": "root"}},
		{"user/grant", map[string]any{"user": "root", "role": "root"}},
		{"role/add", map[string]any{"name": "locks"}},
		{"role/grant", map[string]any{
			"name": "locks", "perm": map[string]any{"permType": 2, "key": allKeys, "range_end": allKeys},
		}},
		{"user/add", map[string]any{"name": "job", "password": "old"}},
		{"user/grant", map[string]any{"user": "job", "role": "locks"}},
		{"enable", map[string]any{}},
	} {
		must(t, c.Nodes[0].post("auth/"+call.path, "", call.body, nil))
	}
	a.URL = strings.Replace(a.URL, "://", "://job:old@", 1)
	return a, c.Nodes[0]
}

func (n *Etcd) login(user, password string) (token string, err error) {
	var reply struct{ Token string }
	err = n.post("auth/authenticate", "", map[string]any{"name": user, "password": password}, &reply)
	return reply.Token, err
}

// etcdPassword changes the only password that a user can have: those who have the old one are out.
func etcdPassword(t TB) *Aged {
	a, n := withLogin(t)
	return a.then(func(t TB) string {
		root, err := n.login("root", "root")
		must(t, err, n.post("auth/user/changepw", root, map[string]any{"name": "job", "password": "new"}, nil))
		_, err = n.login("job", "new")
		must(t, err)
		a.URL = strings.Replace(a.URL, ":old@", ":new@", 1)
		_, err = n.login("job", "old")
		return refused("the old password", err)
	})
}

// etcdToken has every token expire, used or not, within two seconds of a login.
func etcdToken(t TB) *Aged {
	c := NewCerts(t)
	return tokensExpire(t, 0, WithConfig("auth-token",
		fmt.Sprintf("jwt,pub-key=%s,priv-key=%s,sign-method=ES256,ttl=2s", c.CertFile, c.KeyFile)))
}

// etcdIdleToken has tokens expire that a member has not seen for a second.
func etcdIdleToken(t TB) *Aged {
	return tokensExpire(t, 2*time.Second, WithConfig("auth-token-ttl", "1"))
}

// tokensExpire waits until a token that was good is refused; it is used only every so often.
func tokensExpire(t TB, often time.Duration, opt Option) *Aged {
	a, n := withLogin(t, opt)
	step := func(t TB) (proof string) {
		token, err := n.login("job", "old")
		must(t, err)
		until(t, func() int {
			time.Sleep(often)
			proof = refused("a token that was good", n.post("kv/range", token, map[string]any{"key": allKeys}, nil))
			return len(proof)
		})
		return proof
	}
	return a.then(step, step)
}

func etcdCertificate(t TB) *Aged {
	certs := NewCerts(t)
	a, c := threeEtcd(t, WithTLS(certs))
	return a.certified(certs, func(TB) {}, dialTLS(c.Nodes[0].Addr(), certs, doTimeout))
}

func etcdMembers(t TB) *Aged {
	a, c := threeEtcd(t)
	for i, p := range a.proxies {
		a.then(func(t TB) string {
			old := c.Nodes[i]
			fresh := c.Replace(t, i)
			p.Retarget(fresh.Addr())
			return fmt.Sprintf("%s is gone, and %s is in its place", old.Addr(), fresh.Addr())
		})
	}
	return a
}

func etcdVersions(t TB) *Aged {
	a, c := threeEtcd(t, WithTool(ToolEtcdBefore))
	for _, n := range c.Nodes {
		a.then(rolled(n.Process, n.version, func() { n.binary = Need(t, ToolEtcd) }))
	}
	return a
}

// etcdUpkeep forgets all revisions but the latest, and writes the stores of the members anew.
func etcdUpkeep(t TB) *Aged {
	a, c := threeEtcd(t, WithConfig("snapshot-count", "10"))
	return a.thrice(func(t TB) string {
		n := c.Nodes[0]
		var now struct{ Header struct{ Revision string } }
		key := base64.StdEncoding.EncodeToString([]byte("lab"))
		must(t, n.post("kv/put", "", map[string]any{"key": key}, &now))
		must(t, n.post("kv/compaction", "", map[string]any{"revision": now.Header.Revision, "physical": true}, nil))
		for _, n := range c.Nodes {
			must(t, n.post("maintenance/defragment", "", struct{}{}, nil))
		}
		return refused("to tell what was before", n.post("kv/range", "", map[string]any{"key": key, "revision": "1"}, nil))
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
	return a.certified(certs, func(t TB) { must(t, z.install(certs)) }, dialTLS(z.TLSAddr(), certs, doTimeout))
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
	for _, z := range e.Servers {
		a.then(rolled(z.Process, z.version, func() { z.jar = next }))
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

// connect makes a connection to a PostgreSQL.
func connect(url string) (*pgx.Conn, error) { return pgx.Connect(context.Background(), url) }

// postgresPassword leaves connections as they are: a password is asked for on new ones alone. First it runs
// out, then there is a new one.
func postgresPassword(t TB) *Aged {
	a, p := onePostgres(t)
	p.Exec(t, "CREATE ROLE job LOGIN PASSWORD 'old'")
	p.Exec(t, "GRANT CREATE ON SCHEMA public TO job")
	at := func(addr, password string) string {
		return fmt.Sprintf("postgres://job:%s@%s/postgres?sslmode=disable", password, addr)
	}
	login := func(password string) error {
		conn, err := connect(at(p.Addr(), password))
		if err == nil {
			_ = conn.Close(context.Background())
		}
		return err
	}
	a.URL = at(a.proxies[0].Addr(), "old")
	return a.then(func(t TB) string {
		p.Exec(t, "ALTER ROLE job VALID UNTIL '2000-01-01'")
		return refused("a password that has run out", login("old"))
	}, func(t TB) string {
		p.Exec(t, "ALTER ROLE job PASSWORD 'new' VALID UNTIL 'infinity'")
		a.URL = at(a.proxies[0].Addr(), "new")
		must(t, login("new"))
		return refused("the old password", login("old"))
	})
}

func postgresCertificate(t TB) *Aged {
	certs := NewCerts(t)
	a, p := onePostgres(t, WithTLS(certs))
	a.URL = p.URL(a.proxies[0].Addr(), "sslmode=verify-full", "sslrootcert="+url.QueryEscape(certs.CAFile))
	return a.certified(certs, func(t TB) {
		must(t, p.install(certs))
		p.Exec(t, "SELECT pg_reload_conf()")
	}, func() (*tls.Conn, error) {
		conn, err := connect(p.URL(p.Addr(), "sslmode=require"))
		if err != nil {
			return nil, err
		}
		return conn.PgConn().Conn().(*tls.Conn), nil
	})
}

// postgresIdle has a limit that is shorter than the time between two renewals.
func postgresIdle(t TB) *Aged {
	a, p := onePostgres(t)
	p.Set(t, "idle_session_timeout", "500ms")
	return a.thrice(func(t TB) string {
		conn, err := connect(p.URL(p.Addr(), "sslmode=disable"))
		must(t, err)
		return endsByItself(conn.PgConn().Conn())
	})
}

// postgresFailOvers has a standby that misses nothing take over, and then one of that.
func postgresFailOvers(t TB) *Aged {
	a, primary := onePostgres(t)
	a.URL, a.TTL = a.URL+"&failover_safe=on", 6*time.Second
	follow := func(t TB) *Postgres {
		standby := StartPostgres(t, ReplicaOf(primary.Addr()))
		primary.Set(t, "synchronous_standby_names", "standby")
		await(t, func() error {
			state, err := primary.Try("SELECT sync_state FROM pg_stat_replication")
			return differ(map[string]string{"state": state}, map[string]string{"state": "sync"}, err)
		})
		return standby
	}
	standby := follow(t)
	next := func(t TB) string {
		old := primary
		primary.Kill()
		standby.Promote(t)
		primary = standby
		a.proxies[0].Retarget(primary.Addr())
		// What it has of the one before; otherwise no commit comes to an end.
		primary.Set(t, "synchronous_standby_names", "")
		standby = follow(t)
		_ = os.RemoveAll(old.Dir())
		return fmt.Sprintf("%s is gone, %s takes writes: pg_is_in_recovery is %s",
			old.Addr(), primary.Addr(), primary.Query(t, "SELECT pg_is_in_recovery()"))
	}
	return a.then(next, next)
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
