package lab

import (
	"slices"
	"strings"
)

// Option changes how a server is started, or each of several.
type Option func(*config)

// config is what options decide.
type config struct {
	settings []setting // after ours, so that they win
	java     []string
	certs    *Certs
	clocked  bool
	tool     string
	dir      string
	primary  string
	proxies  bool

	sentinel bool // a Redis is one
}

type setting struct {
	name   string
	values []string
}

// of makes a config of what all servers of a kind have, and of opts, which win.
func of(opts []Option, ours ...Option) (c config) {
	for _, opt := range slices.Concat(ours, opts) {
		opt(&c)
	}
	return c
}

// WithConfig adds a setting, which wins over what this package writes: a line of redis.conf, with values that are
// quoted as needed, or of zoo.cfg, a parameter of PostgreSQL, a flag of etcd.
func WithConfig(name string, values ...string) Option {
	return func(c *config) { c.settings = append(c.settings, setting{name, values}) }
}

// assigned lists the settings with one value each, in the manner of name=value.
func (c *config) assigned(before string) (all []string) {
	for _, s := range c.settings {
		all = append(all, before+s.name+"="+strings.Join(s.values, " "))
	}
	return all
}

// WithTLS makes the server speak TLS. A Redis and an etcd speak nothing else then, a PostgreSQL speaks it with
// whoever asks for it, and a ZooKeeper does on a second port. They do not insist on a client's certificate.
func WithTLS(certs *Certs) Option { return func(c *config) { c.certs = certs } }

// WithClock makes the server's wall clock jump on request: see [Process.JumpClock]. It needs libfaketime, and Linux;
// it is not for etcd.
func WithClock() Option { return func(c *config) { c.clocked = true } }

// WithTool starts another version, one of the Tool constants.
func WithTool(tool string) Option { return func(c *config) { c.tool = tool } }

// WithDir keeps the server's data in a directory of the test's, such as a small file system.
func WithDir(dir string) Option { return func(c *config) { c.dir = dir } }

// WithJavaFlag adds an argument for a ZooKeeper's Java, as in "-Djute.maxbuffer=200000".
func WithJavaFlag(flag string) Option { return func(c *config) { c.java = append(c.java, flag) } }

// WithPeerProxies makes the members of an etcd cluster talk to each other through proxies, which
// [EtcdCluster.Isolate] needs.
func WithPeerProxies() Option { return func(c *config) { c.proxies = true } }

// ReplicaOf makes a Redis a replica, or a PostgreSQL a standby, of the primary at this address, which can be that of
// a [Proxy] on the way to it. A Redis is in step when it has been started. A standby follows by streaming replication,
// under the name standby. Commits on its primary do not wait for it, unless [Postgres.Set] there says so:
//
//	primary.Set(t, "synchronous_standby_names", "standby")
func ReplicaOf(addr string) Option { return func(c *config) { c.primary = addr } }

// WithAppendOnly makes a Redis write each change to disk before it answers (appendonly yes,
// appendfsync always), so that a killed one comes back with its data.
func WithAppendOnly() Option {
	return func(c *config) {
		WithConfig("appendonly", "yes")(c)
		WithConfig("appendfsync", "always")(c)
	}
}

// WithPassword makes a Redis ask every client for a password, which is that of the user "default".
func WithPassword(password string) Option { return WithConfig("requirepass", password) }

// WithUser adds an ACL user of a Redis by its rules: WithUser("alice", "on", ">secret", "~lock:*", "+@all").
// A client that does not log in remains the user "default" with all rights, unless WithUser("default", "off")
// is given too.
func WithUser(name string, rules ...string) Option {
	return WithConfig("user", append([]string{name}, rules...)...)
}

// asksWho reports whether a Redis has passwords or users: not everybody may do everything.
func (c *config) asksWho() bool {
	return slices.ContainsFunc(c.settings, func(s setting) bool { return s.name == "requirepass" || s.name == "user" })
}
