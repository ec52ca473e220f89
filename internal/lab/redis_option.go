package lab

import (
	"fmt"
	"net"
	"strconv"
	"strings"
)

// RedisOption changes how a Redis is started.
type RedisOption func(*redisConfig)

// redisConfig is what the options decide.
type redisConfig struct {
	lines       []string // of redis.conf, after ours, so that they win
	auth        bool     // a password or users were given: not everybody may do everything
	certs       *Certs
	clock       bool
	socket      bool
	socketPath  string
	primary     *Redis
	primaryAddr string
	sentinel    bool
	cluster     bool
}

// Every server with authentication also has this user, so that tests can look at it and servers can
// replicate from each other, whatever rights the users under test have. It protects nothing.
const (
	adminUser     = "lab"
	adminPassword = "lab"
)

// WithConfig adds a line to redis.conf: WithConfig("maxmemory", "10mb"). It wins over what this
// package writes. Values are quoted as needed.
func WithConfig(name string, values ...string) RedisOption {
	return func(c *redisConfig) { c.lines = append(c.lines, confLine(name, values...)) }
}

// WithAppendOnly makes the server write each change to disk before it answers (appendonly yes,
// appendfsync always), so that a killed one comes back with its data.
func WithAppendOnly() RedisOption {
	return func(c *redisConfig) {
		WithConfig("appendonly", "yes")(c)
		WithConfig("appendfsync", "always")(c)
	}
}

// WithPassword asks every client for a password (requirepass), which is that of the user "default".
func WithPassword(password string) RedisOption {
	return func(c *redisConfig) {
		c.auth = true
		WithConfig("requirepass", password)(c)
	}
}

// WithUser adds an ACL user by its rules: WithUser("alice", "on", ">secret", "~lock:*", "+@all").
// A client that does not log in remains the user "default" with all rights, unless WithUser("default", "off")
// is given too.
func WithUser(name string, rules ...string) RedisOption {
	return func(c *redisConfig) {
		c.auth = true
		WithConfig("user", append([]string{name}, rules...)...)(c)
	}
}

// WithSocket makes the server listen on a unix socket besides its port: see [Redis.Socket].
func WithSocket() RedisOption {
	return func(c *redisConfig) { c.socket = true }
}

// WithTLS makes the server speak TLS on its port. Clients may show a certificate of the same
// authority; WithConfig("tls-auth-clients", "yes") makes them.
func WithTLS(certs *Certs) RedisOption {
	return func(c *redisConfig) { c.certs = certs }
}

// WithClock makes the server's wall clock jump on request: see [Redis.JumpClock]. It needs libfaketime,
// and Linux.
func WithClock() RedisOption {
	return func(c *redisConfig) { c.clock = true }
}

// ReplicaOf makes the server a replica of primary. StartRedis returns once they are in step.
func ReplicaOf(primary *Redis) RedisOption { return ReplicaThrough(primary, primary.Addr()) }

// ReplicaThrough is [ReplicaOf] with another address to reach the primary at: that of a [Proxy], which
// can cut the replication.
func ReplicaThrough(primary *Redis, addr string) RedisOption {
	return func(c *redisConfig) { c.primary, c.primaryAddr = primary, addr }
}

// file returns the text of redis.conf.
func (c *redisConfig) file(dir string, port int) string {
	var b strings.Builder
	line := func(name string, values ...string) { b.WriteString(confLine(name, values...)) }
	line("bind", "127.0.0.1")
	line("protected-mode", "no")
	line("daemonize", "no")
	line("dir", dir)
	if c.certs == nil {
		line("port", strconv.Itoa(port))
	} else {
		line("port", "0")
		line("tls-port", strconv.Itoa(port))
		line("tls-ca-cert-file", c.certs.CAFile)
		line("tls-cert-file", c.certs.CertFile)
		line("tls-key-file", c.certs.KeyFile)
		line("tls-auth-clients", "optional")
		line("tls-replication", "yes")
		line("tls-cluster", "yes")
	}
	if c.auth {
		line("user", adminUser, "on", ">"+adminPassword, "~*", "&*", "+@all")
	}
	if c.sentinel {
		// The rest is unknown to a Sentinel.
		return b.String() + strings.Join(c.lines, "")
	}
	line("save", "")
	line("appendonly", "no")
	// The default waits 5 s for more replicas to come.
	line("repl-diskless-sync-delay", "0")
	if c.auth {
		// Every server, since a fail-over can make any of them a replica.
		line("masteruser", adminUser)
		line("masterauth", adminPassword)
	}
	if c.socketPath != "" {
		line("unixsocket", c.socketPath)
		line("unixsocketperm", "700")
	}
	if c.primary != nil {
		host, port, _ := net.SplitHostPort(c.primaryAddr)
		line("replicaof", host, port)
	}
	return b.String() + strings.Join(c.lines, "")
}

func confLine(name string, values ...string) string {
	var b strings.Builder
	b.WriteString(name)
	for _, value := range values {
		fmt.Fprintf(&b, " %s", confQuote(value))
	}
	b.WriteByte('\n')
	return b.String()
}

// confQuote quotes a value as redis.conf wants it: bytes outside of printable ASCII as \xHH.
func confQuote(value string) string {
	var b strings.Builder
	b.WriteByte('"')
	for i := range len(value) {
		switch c := value[i]; {
		case c == '"' || c == '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		case c < ' ' || c > '~':
			fmt.Fprintf(&b, `\x%02x`, c)
		default:
			b.WriteByte(c)
		}
	}
	b.WriteByte('"')
	return b.String()
}
