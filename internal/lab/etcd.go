package lab

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// Etcd is one member of an etcd cluster, on 127.0.0.1. Its methods may be called from any goroutine,
// except those that take a TB.
type Etcd struct {
	*Process // the second port is for its peers
	cluster  *EtcdCluster
	proxy    *Proxy // before the peer port; nil without WithPeerProxies
	binary   string
}

// EtcdCluster is an etcd cluster that belongs to a test.
type EtcdCluster struct {
	Nodes []*Etcd

	config
	http *http.Client
	cut  *isolation
}

// StartEtcd starts a cluster of that many members and returns once all of them answer and have a leader.
// Elections take about a second, and the shortest lease lasts one. Nothing is synced to disk: data
// survives the death of a process, not that of the machine. The members are killed when the test ends.
// Without etcd the test is skipped; see [Need].
func StartEtcd(t TB, members int, opts ...Option) *EtcdCluster {
	t.Helper()
	var c *EtcdCluster
	launch(t, func() []*Process {
		c = &EtcdCluster{config: of(opts)}
		transport := &http.Transport{DisableKeepAlives: true}
		if c.certs != nil {
			transport.TLSClientConfig = c.certs.ClientConfig()
		}
		c.http = &http.Client{Timeout: probe, Transport: transport}
		for i := range members {
			n := c.newNode(t, Need(t, cmp.Or(c.tool, ToolEtcd)), fmt.Sprintf("etcd-%d", i+1))
			c.Nodes = append(c.Nodes, n)
		}
		if c.proxies {
			c.cut = watchPeers(c)
		}
		return processes(c.Nodes)
	})
	return c
}

func (c *EtcdCluster) newNode(t TB, binary, name string) *Etcd {
	t.Helper()
	n := &Etcd{cluster: c, binary: binary}
	conf := c.config
	if c.tool == ToolOldEtcd && conf.dir == "" { // it cannot be told not to sync
		conf.dir = newDir(t, memory())
	}
	n.Process = newProcess(t, name, conf, 2)
	if c.proxies {
		n.proxy = StartProxy(t, loopback(n.ports[1]))
	}
	n.command, n.answers = n.newCommand, n.isHealthy
	return n
}

func (n *Etcd) newCommand() (*exec.Cmd, error) {
	c := n.cluster
	var all []string
	for _, other := range c.Nodes {
		all = append(all, other.name+"="+other.peerURL())
	}
	args := []string{
		"--name=" + n.name,
		"--data-dir=" + filepath.Join(n.dir, "data"),
		"--listen-client-urls=" + n.URL(), "--advertise-client-urls=" + n.URL(),
		"--listen-peer-urls=http://" + loopback(n.ports[1]), "--initial-advertise-peer-urls=" + n.peerURL(),
		"--initial-cluster=" + strings.Join(all, ","), "--initial-cluster-state=new",
		"--initial-cluster-token=" + c.Nodes[0].dir,
		"--heartbeat-interval=50", "--election-timeout=650",
		"--log-level=warn",
	}
	if c.tool != ToolOldEtcd {
		args = append(args, "--unsafe-no-fsync")
	}
	if c.certs != nil {
		args = append(args, "--cert-file="+c.certs.CertFile, "--key-file="+c.certs.KeyFile)
	}
	return n.program(n.binary, append(args, c.assigned("--")...)...), nil
}

func (n *Etcd) peerURL() string {
	if n.proxy != nil {
		return "http://" + n.proxy.Addr()
	}
	return "http://" + loopback(n.ports[1])
}

// isHealthy returns nil once this member serves linearizable requests.
func (n *Etcd) isHealthy() error {
	err := n.ask("/health", nil, nil)
	if err == nil && !n.Running() {
		err = fmt.Errorf("lab: somebody else has got the port of %s", n.name)
	}
	return err
}

// post calls the API of version 3 by its gateway.
func (n *Etcd) post(path string, body, into any) error { return n.ask("/v3/"+path, body, into) }

// ask gets a path, or posts a body to it. What the server refuses is an error.
func (n *Etcd) ask(path string, body, into any) error {
	method, text := http.MethodGet, []byte(nil)
	if body != nil {
		method = http.MethodPost
		text, _ = json.Marshal(body)
	}
	req, err := http.NewRequestWithContext(context.Background(), method, n.URL()+path, bytes.NewReader(text))
	if err != nil {
		return err
	}
	resp, err := n.cluster.http.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err = io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = errors.New(resp.Status)
	} else if err == nil && into != nil {
		err = json.Unmarshal(text, into)
	}
	if err != nil {
		err = fmt.Errorf("lab: %s answered %s with %q: %w", n.name, path, text, err)
	}
	return err
}

// URL returns the address for clients as etcd has it, with http or https in front.
func (n *Etcd) URL() string {
	if n.cluster.certs != nil {
		return "https://" + n.Addr()
	}
	return "http://" + n.Addr()
}

// Restart kills all members (SIGKILL) and starts them again with their data, and returns once all serve.
func (c *EtcdCluster) Restart(t TB) {
	t.Helper()
	for _, n := range c.Nodes {
		n.Kill()
	}
	c.Start(t)
}

// Start starts all members that do not run, with their data, and returns once all serve: none of them gets
// ready without a majority.
func (c *EtcdCluster) Start(t TB) {
	t.Helper()
	Restart(t, processes(c.Nodes)...)
}

// Addrs returns the host:port for clients of each member.
func (c *EtcdCluster) Addrs() []string { return addrs(c.Nodes) }

// Leader returns the member that a majority takes for the leader, and waits until there is one. Members
// in except do not count and are not asked: those that the test has paused, or cut off.
func (c *EtcdCluster) Leader(t TB, except ...*Etcd) (found *Etcd) {
	t.Helper()
	await(t, func() error {
		votes := map[string]int{}
		ids := map[string]*Etcd{}
		for _, n := range c.Nodes {
			if n.Running() && !slices.Contains(except, n) {
				id, leader := n.status()
				ids[id] = n
				votes[leader]++
			}
		}
		for id, count := range votes {
			if found = ids[id]; found != nil && count > len(c.Nodes)/2 {
				return nil
			}
		}
		return fmt.Errorf("lab: etcd has no leader: votes %v", votes)
	}, processes(c.Nodes)...)
	return found
}

// Follower returns a running member that is not the leader.
func (c *EtcdCluster) Follower(t TB) *Etcd {
	t.Helper()
	leader := c.Leader(t)
	for _, n := range c.Nodes {
		if n != leader && n.Running() {
			return n
		}
	}
	t.Fatal("lab: there is no follower")
	return nil
}

// status returns the member's ID and that of the leader as the member sees it; "" for none.
func (n *Etcd) status() (id, leader string) {
	var reply struct {
		Header struct {
			ID string `json:"member_id"`
		}
		Leader string
	}
	if err := n.post("maintenance/status", struct{}{}, &reply); err != nil {
		return "", ""
	}
	return reply.Header.ID, reply.Leader
}

// Roll stops the members one after the other, and starts them again with another version of etcd and their
// data. The next one follows when between returns. Roll returns when the cluster has agreed on the new
// version.
func (c *EtcdCluster) Roll(t TB, tool string, between func()) {
	t.Helper()
	for _, n := range c.Nodes {
		n.Stop()
		n.binary = Need(t, tool)
		n.Restart(t)
		between()
	}
	minor := func(version string) string { return version[:max(0, strings.LastIndexByte(version, '.'))] }
	await(t, func() error {
		var is struct{ Etcdserver, Etcdcluster string }
		err := c.Nodes[0].ask("/version", nil, &is)
		return differ(map[string]string{"cluster's version": minor(is.Etcdcluster)},
			map[string]string{"cluster's version": minor(is.Etcdserver)}, err)
	})
}
