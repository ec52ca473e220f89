package lab

import (
	"encoding/base64"
	"fmt"
	"net/url"
	"strings"
	"time"
)

func standEtcd(t TB) *standing {
	t.Helper()
	s, _ := threeEtcd(t, "etcd", "")
	return s
}

func threeEtcd(t TB, scheme, after string, opts ...EtcdOption) (*standing, *EtcdCluster) {
	t.Helper()
	c := StartEtcd(t, 3, opts...)
	return stand(t, 3*time.Second, under(scheme, after), c.Addrs()...), c
}

// withLogin is etcd with authentication on, and with one user for clients; say changes its password.
func withLogin(t TB, opts ...EtcdOption) (
	s *standing, c *EtcdCluster, login func(password string) (token string, err error),
) {
	t.Helper()
	// Checking a password is to take a while; here it must not keep all others from a processor.
	s, c = threeEtcd(t, "etcd", "", append(opts, WithEtcdFlag("bcrypt-cost", "4"))...)
	const all = "AA==" // a zero byte
	for _, call := range []struct {
		path string
		body map[string]any
	}{
		{"auth/role/add", map[string]any{"name": "root"}},
		{"auth/user/add", map[string]any{"name": "root", "password": "root"}},
		{"auth/user/grant", map[string]any{"user": "root", "role": "root"}},
		{"auth/role/add", map[string]any{"name": "locks"}},
		{"auth/role/grant", map[string]any{
			"name": "locks", "perm": map[string]any{"permType": 2, "key": all, "range_end": all},
		}},
		{"auth/user/add", map[string]any{"name": "job", "password": "old"}},
		{"auth/user/grant", map[string]any{"user": "job", "role": "locks"}},
		{"auth/enable", map[string]any{}},
	} {
		if err := c.Nodes[0].post(call.path, "", call.body, nil); err != nil {
			t.Fatal(err)
		}
	}
	s.aged.URL = strings.Replace(s.aged.URL, "://", "://job:old@", 1)
	return s, c, func(password string) (string, error) { return c.Nodes[0].login("job", password) }
}

func (n *Etcd) login(user, password string) (token string, err error) {
	var reply struct{ Token string }
	err = n.post("auth/authenticate", "", map[string]any{"name": user, "password": password}, &reply)
	return reply.Token, err
}

// etcdPassword changes the only password that a user can have: those who have the old one are out.
func etcdPassword(t TB) *Aged {
	s, c, login := withLogin(t)
	return s.then(func(t TB) string {
		root, err := c.Nodes[0].login("root", "root")
		if err == nil {
			err = c.Nodes[0].post("auth/user/changepw", root,
				map[string]any{"name": "job", "password": "new"}, nil)
		}
		if err == nil {
			_, err = login("new")
		}
		if err != nil {
			t.Fatal(err)
		}
		s.aged.URL = strings.Replace(s.aged.URL, ":old@", ":new@", 1)
		if _, err := login("old"); err != nil {
			return "the old password is refused: " + err.Error()
		}
		return ""
	})
}

// etcdToken has every token expire, used or not, within two seconds of a login.
func etcdToken(t TB) *Aged {
	c := NewCerts(t)
	return tokensExpire(t, 0, WithEtcdFlag("auth-token",
		fmt.Sprintf("jwt,pub-key=%s,priv-key=%s,sign-method=ES256,ttl=2s", c.CertFile, c.KeyFile)))
}

// etcdIdleToken has tokens expire that a member has not seen for a second.
func etcdIdleToken(t TB) *Aged {
	return tokensExpire(t, 2*time.Second, WithEtcdFlag("auth-token-ttl", "1"))
}

// tokensExpire waits until a token that was good is refused; it is used only every so often.
func tokensExpire(t TB, often time.Duration, opt EtcdOption) *Aged {
	s, c, login := withLogin(t, opt)
	step := func(t TB) string {
		token, err := login("old")
		look := func() error {
			time.Sleep(often)
			return c.Nodes[0].post("kv/range", token, map[string]any{"key": "AA=="}, nil)
		}
		if err != nil {
			t.Fatal(err)
		}
		until(t, func() int {
			if err = look(); err == nil {
				return 0
			}
			return 1
		})
		return "a token is refused that was good: " + err.Error()
	}
	return s.then(step, step)
}

func etcdCertificate(t TB) *Aged {
	certs := NewCerts(t)
	s, c := threeEtcd(t, "etcds", "?ca="+url.QueryEscape(certs.CAFile), WithEtcdTLS(certs, false))
	return s.then(s.newCertificate(func(t TB) {
		if err := certs.Renew(); err != nil {
			t.Fatal(err)
		}
	}, dialTLS(c.Nodes[0].Addr(), certs)))
}

func etcdMembers(t TB) *Aged {
	s, c := threeEtcd(t, "etcd", "")
	for i, p := range s.proxies {
		s.then(func(t TB) string {
			old := c.Nodes[i]
			fresh := c.Replace(t, i)
			p.Retarget(fresh.Addr())
			return fmt.Sprintf("%s is gone, and %s is in its place", old.Addr(), fresh.Addr())
		})
	}
	return s.aged
}

// Replace takes a member out of the cluster for good, and has a new one with an empty disk and another
// address take its place. The method returns when it serves.
func (c *EtcdCluster) Replace(t TB, i int) *Etcd {
	t.Helper()
	old, other := c.Nodes[i], c.Nodes[(i+1)%len(c.Nodes)]
	id, _ := old.status()
	// Changes are refused while members have not been connected for some seconds.
	change := func(path string, body map[string]any) {
		until(t, func() int {
			if other.post("cluster/member/"+path, "", body, nil) != nil {
				return 0
			}
			return 1
		})
	}
	change("remove", map[string]any{"ID": id})
	old.Kill()
	fresh := c.newNode(t, old.binary, old.name+"-next")
	fresh.late = true
	c.Nodes[i] = fresh
	change("add", map[string]any{"peerURLs": []string{fresh.peerURL()}})
	if err := serve(fresh.Process); err != nil {
		t.Fatal(err)
	}
	return fresh
}

func etcdVersions(t TB) *Aged {
	s, c := threeEtcd(t, "etcd", "", WithEtcdBefore())
	for _, n := range c.Nodes {
		s.then(rolled(n.Process, n.version, func() { n.binary = Need(t, ToolEtcd) }))
	}
	return s.aged
}

// Roll stops the members one after the other, and starts them again with another version of etcd and their
// data. The next one follows when between returns. Roll returns when the cluster has agreed on the new
// version.
func (c *EtcdCluster) Roll(t TB, tool string, between func()) {
	t.Helper()
	for _, n := range c.Nodes {
		n.upgrade(t, tool)
		between()
	}
	minor := func(version string) string { return version[:strings.LastIndexByte(version, '.')+1] }
	until(t, func() int {
		if v := c.Nodes[0].versions(); v.Etcdcluster == "" || minor(v.Etcdcluster) != minor(v.Etcdserver) {
			return 0
		}
		return 1
	})
}

func (n *Etcd) upgrade(t TB, tool string) {
	t.Helper()
	n.binary = Need(t, tool)
	n.Stop()
	n.Restart(t)
}

func (n *Etcd) version() string { return n.versions().Etcdserver }

func (n *Etcd) versions() (v struct{ Etcdserver, Etcdcluster string }) {
	_ = n.get("/version", &v)
	return v
}

// etcdUpkeep forgets all revisions but the latest, and writes the stores of the members anew.
func etcdUpkeep(t TB) *Aged {
	s, c := threeEtcd(t, "etcd", "", WithEtcdFlag("snapshot-count", "10"))
	step := func(t TB) string {
		n := c.Nodes[0]
		var now struct{ Header struct{ Revision string } }
		key := base64.StdEncoding.EncodeToString([]byte("lab"))
		err := n.post("kv/put", "", map[string]any{"key": key}, &now)
		if err == nil {
			err = n.post("kv/compaction", "", map[string]any{"revision": now.Header.Revision,
				"physical": true}, nil)
		}
		for _, n := range c.Nodes {
			if err == nil {
				err = n.post("maintenance/defragment", "", struct{}{}, nil)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := n.post("kv/range", "", map[string]any{"key": key, "revision": "1"}, nil); err != nil {
			return "what was before is forgotten: " + err.Error()
		}
		return ""
	}
	return s.then(thrice(step)...)
}
