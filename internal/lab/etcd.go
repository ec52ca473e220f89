package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Etcd is one member of an etcd cluster, on 127.0.0.1. Its methods may be called from any goroutine,
// except those that take a TB.
type Etcd struct {
	*Process
	cluster  *EtcdCluster
	name     string
	port     int // for clients
	peerPort int
	proxy    *Proxy // before the peer port; nil without WithPeerProxies
	binary   string
	late     bool // it has joined a cluster that was there before
}

// EtcdCluster is an etcd cluster that belongs to a test.
type EtcdCluster struct {
	Nodes []*Etcd

	conf  etcdConfig
	dir   string
	token string
	http  *http.Client
	cut   *isolation
}

// EtcdOption changes how an etcd cluster is started.
type EtcdOption func(*etcdConfig)

type etcdConfig struct {
	flags       []string
	certs       *Certs
	clientCerts bool
	peerProxies bool
	oldest      bool
	before      bool
}

// WithEtcdFlag adds a flag to every member's command line: WithEtcdFlag("auth-token-ttl", "1"). It wins
// over what this package gives.
func WithEtcdFlag(name, value string) EtcdOption {
	return func(c *etcdConfig) { c.flags = append(c.flags, "--"+name+"="+value) }
}

// WithEtcdTLS makes the members speak TLS to clients. With askClients they refuse clients without a
// certificate of the same authority.
func WithEtcdTLS(certs *Certs, askClients bool) EtcdOption {
	return func(c *etcdConfig) { c.certs, c.clientCerts = certs, askClients }
}

// WithPeerProxies makes the members talk to each other through proxies, which [EtcdCluster.Isolate] needs.
func WithPeerProxies() EtcdOption {
	return func(c *etcdConfig) { c.peerProxies = true }
}

// WithOldestEtcd starts the oldest etcd that is supported, and not the pinned one.
func WithOldestEtcd() EtcdOption {
	return func(c *etcdConfig) { c.oldest = true }
}

// WithEtcdBefore starts the version before the pinned one, from which [EtcdCluster.Roll] leads to that.
func WithEtcdBefore() EtcdOption {
	return func(c *etcdConfig) { c.before = true }
}

// StartEtcd starts a cluster of that many members and returns once all of them answer and have a leader.
// Elections take about a second, and the shortest lease lasts one. Nothing is synced to disk: data
// survives the death of a process, not that of the machine. The members are killed when the test ends.
// Without etcd the test is skipped; see [Need].
func StartEtcd(t TB, members int, opts ...EtcdOption) *EtcdCluster {
	t.Helper()
	var c *EtcdCluster
	onFreePorts(t, func() error {
		c = &EtcdCluster{dir: t.TempDir(), token: filepath.Base(t.TempDir()) + strconv.Itoa(os.Getpid())}
		for _, opt := range opts {
			opt(&c.conf)
		}
		tool := ToolEtcd
		if c.conf.before {
			tool = ToolEtcdBefore
		}
		if c.conf.oldest {
			tool = ToolOldEtcd
			// It cannot be told not to sync.
			if dir, err := os.MkdirTemp("/dev/shm", "locker-etcd-"); err == nil {
				t.Cleanup(func() { _ = os.RemoveAll(dir) })
				c.dir = dir
			}
		}
		binary := Need(t, tool)
		transport := &http.Transport{DisableKeepAlives: true}
		if c.conf.certs != nil {
			transport.TLSClientConfig = c.conf.certs.ClientConfig()
		}
		c.http = &http.Client{Timeout: 2 * time.Second, Transport: transport}
		for i := range members {
			c.Nodes = append(c.Nodes, c.newNode(t, binary, fmt.Sprintf("etcd-%d", i+1)))
		}
		if c.conf.peerProxies {
			c.cut = watchPeers(c)
		}
		return c.serve()
	})
	return c
}

func (c *EtcdCluster) newNode(t TB, binary, name string) *Etcd {
	t.Helper()
	n := &Etcd{cluster: c, name: name, binary: binary}
	var err error
	if n.port, err = freePort(t); err != nil {
		t.Fatal(err)
	}
	if n.peerPort, err = freePort(t); err != nil {
		t.Fatal(err)
	}
	if c.conf.peerProxies {
		n.proxy = StartProxy(t, loopback(n.peerPort))
	}
	n.Process = newProcess(t, name, c.dir, func() (*exec.Cmd, error) {
		// Not the test's context: it ends before the clean-up, which may still need the server.
		return exec.CommandContext(context.Background(), n.binary, n.args()...), nil
	})
	n.answers = n.isHealthy
	return n
}

func (n *Etcd) args() []string {
	c := n.cluster
	peer := "http://" + loopback(n.peerPort)
	var all []string
	for _, other := range c.Nodes {
		all = append(all, other.name+"="+other.peerURL())
	}
	args := []string{
		"--name=" + n.name,
		"--data-dir=" + filepath.Join(c.dir, n.name),
		"--listen-client-urls=" + n.URL(), "--advertise-client-urls=" + n.URL(),
		"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + n.peerURL(),
		"--initial-cluster=" + strings.Join(all, ","),
		"--initial-cluster-token=" + c.token,
		"--heartbeat-interval=50", "--election-timeout=500",
		"--log-level=warn",
	}
	if !c.conf.oldest {
		args = append(args, "--unsafe-no-fsync")
	}
	if n.late {
		args = append(args, "--initial-cluster-state=existing")
	}
	if certs := c.conf.certs; certs != nil {
		args = append(args, "--cert-file="+certs.CertFile, "--key-file="+certs.KeyFile)
		if c.conf.clientCerts {
			args = append(args, "--client-cert-auth", "--trusted-ca-file="+certs.CAFile)
		}
	}
	return append(args, c.conf.flags...)
}

func (n *Etcd) peerURL() string {
	if n.proxy != nil {
		return "http://" + n.proxy.Addr()
	}
	return "http://" + loopback(n.peerPort)
}

// serve starts every member that does not run: none of them gets ready without a majority of them.
func (c *EtcdCluster) serve() error {
	var all []*Process
	for _, n := range c.Nodes {
		all = append(all, n.Process)
	}
	return serve(all...)
}

// isHealthy returns nil once this member serves linearizable requests.
func (n *Etcd) isHealthy() error {
	var health struct{ Health, Reason string }
	if err := n.get("/health", &health); err != nil {
		return err
	}
	if health.Health != "true" {
		return fmt.Errorf("lab: %s is not healthy: %s", n.name, health.Reason)
	}
	if !n.Running() {
		return fmt.Errorf("lab: somebody else has got the port of %s", n.name)
	}
	return nil
}

func (n *Etcd) get(path string, into any) error {
	req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, n.URL()+path, nil)
	if err != nil {
		return err
	}
	return n.ask(req, into)
}

// post calls the API of version 3 by its gateway, with a token where authentication asks for one. What the
// server refuses is an error.
func (n *Etcd) post(path, token string, body any, into any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	url := n.URL() + "/v3/" + path
	req, err := http.NewRequestWithContext(context.Background(), http.MethodPost, url, bytes.NewReader(text))
	if err != nil {
		return err
	}
	if token != "" {
		req.Header.Set("Authorization", token)
	}
	var raw json.RawMessage
	if err := n.ask(req, &raw); err != nil {
		return err
	}
	var refused struct {
		Code    int
		Message string
	}
	if err := json.Unmarshal(raw, &refused); err != nil || refused.Code != 0 {
		return fmt.Errorf("lab: %s: %s", path, refused.Message)
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(raw, into)
}

func (n *Etcd) ask(req *http.Request, into any) error {
	resp, err := n.cluster.http.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("lab: %s answered %s with %q: %w", n.name, req.URL.Path, body, err)
	}
	return nil
}

// Addr returns the host:port for clients.
func (n *Etcd) Addr() string { return loopback(n.port) }

// URL returns the address for clients as etcd has it, with http or https in front.
func (n *Etcd) URL() string {
	if n.cluster.conf.certs != nil {
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

// Start starts all members that do not run, with their data, and returns once all serve.
func (c *EtcdCluster) Start(t TB) {
	t.Helper()
	if err := c.serve(); err != nil {
		t.Fatal(err)
	}
}

// Addrs returns the host:port for clients of each member.
func (c *EtcdCluster) Addrs() []string { return addrs(c.Nodes) }

// Leader returns the member that a majority takes for the leader, and waits until there is one. Members
// in except do not count and are not asked: those that the test has paused, or cut off.
func (c *EtcdCluster) Leader(t TB, except ...*Etcd) *Etcd {
	t.Helper()
	var found *Etcd
	if err := poll(func() error {
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
		return fmt.Errorf("lab: etcd has no leader after %v: votes %v", readyTimeout, votes)
	}, nil, c.Nodes...); err != nil {
		t.Fatal(err)
	}
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
	if err := n.post("maintenance/status", "", struct{}{}, &reply); err != nil {
		return "", ""
	}
	return reply.Header.ID, reply.Leader
}

// Keys returns how many keys there are.
func (n *Etcd) Keys(t TB) int {
	t.Helper()
	var reply struct{ Count string }
	all := map[string]any{"key": "AA==", "range_end": "AA==", "count_only": true}
	if err := n.post("kv/range", "", all, &reply); err != nil {
		t.Fatal(err)
	}
	count, _ := strconv.Atoi(reply.Count) // left out if it is 0
	return count
}
