package single

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/golockers/locker"
	"github.com/golockers/locker/internal/redisconn"
	"github.com/golockers/locker/internal/tlsurl"
)

// Openers are the URL schemes of this package.
var Openers = locker.Openers{
	"redis":           Open,
	"rediss":          Open,
	"unix":            Open,
	"redis+sentinel":  Open,
	"rediss+sentinel": Open,
	"redis+cluster":   Open,
	"rediss+cluster":  Open,
}

// Open is the [locker.Opener] of this package, for the schemes redis, rediss,
// unix, redis+sentinel, rediss+sentinel, redis+cluster and rediss+cluster; see
// the package documentation. It connects once, so that a wrong address or
// password is told at once.
func Open(ctx context.Context, u *locker.URL, opts locker.Options) (locker.Backend, error) {
	o := Options{Timeout: u.Duration("timeout", 0)}
	conn, err := connOptions(u)
	if err == nil {
		err = u.Check()
	}
	if err != nil {
		return nil, err
	}
	if o.Timeout > 0 {
		conn.ReadTimeout, conn.WriteTimeout = o.Timeout, o.Timeout
	}
	client := conn.client()
	b, err := New(client, &o)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%w: %s: %w", locker.ErrInvalid, u, err), client.Close())
	}
	b.client = client
	if err := b.contact(ctx, opts.Logger); err != nil {
		err = fmt.Errorf("%s: %w%s", u, err, hint(err, conn.TLSConfig != nil))
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

// contact warns of servers that may throw lock keys away, if they may be asked, and asks about some locks: one
// name may be on this node of a Cluster that was taken for a server of its own, but not all.
func (b *Backend) contact(ctx context.Context, log *slog.Logger) error {
	names := 1
	servers, _ := b.server.Servers(ctx)
	for _, s := range servers {
		if s.MayEvict() && log != nil {
			log.Warn("single: the server may evict locks when its memory is full: set maxmemory-policy noeviction",
				"server", s.Addr, "maxmemory-policy", s.Eviction)
		}
		if s.Cluster && !b.server.IsCluster() {
			names = 16
		}
	}
	for i := range names {
		if _, err := b.Inspect(ctx, "locker"+strconv.Itoa(i)); err != nil {
			return err
		}
	}
	return nil
}

// hint says what an error of the first contact often means.
func hint(err error, overTLS bool) string {
	var timeout net.Error
	switch hungUp := errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET); {
	case !overTLS && hungUp:
		return " (if the server wants TLS, write rediss)"
	case overTLS && (hungUp || errors.Is(err, redisconn.ErrTimeout) || errors.As(err, &timeout) &&
		timeout.Timeout()):
		return " (if the server does not speak TLS, write redis)"
	}
	return ""
}

// conn is what a URL says about the connections.
type conn struct {
	redis.UniversalOptions
	network string // "unix", or "" for TCP
}

func connOptions(u *locker.URL) (conn, error) {
	c := conn{}
	c.Addrs = u.Hosts
	if u.User != nil {
		c.Username = u.User.Username()
		c.Password, _ = u.User.Password()
	}
	base, kind, _ := strings.Cut(u.Scheme, "+")
	if kind == "sentinel" {
		c.MasterName = u.Param("master_name", "")
		c.SentinelUsername = u.Param("sentinel_username", "")
		c.SentinelPassword = u.Param("sentinel_password", "")
		if c.MasterName == "" {
			return c, u.Invalid("name the master that the Sentinels watch: ?master_name=…")
		}
	}
	c.IsClusterMode = kind == "cluster"
	if err := c.readDB(u, kind); err != nil {
		return c, err
	}
	if base == "unix" {
		if u.Path == "" || len(c.Addrs) > 0 {
			return c, u.Invalid("write the path of the socket with three slashes, as in unix:///run/redis.sock")
		}
		c.network, c.Addrs = "unix", []string{u.Path}
	} else if err := c.readAddrs(u, kind); err != nil {
		return c, err
	}
	if base == "rediss" {
		config, err := tlsurl.Config(u)
		if err != nil {
			return c, err
		}
		c.TLSConfig = config
	}
	// The lock has time limits and repetitions of its own, which know what is safe.
	c.MaxRetries = -1
	c.ContextTimeoutEnabled = true
	c.DialTimeout = 2 * time.Second
	c.ReadTimeout, c.WriteTimeout = defaultTimeout, defaultTimeout
	c.DialerRetries = 1
	c.Dialer = redisconn.Dialer(c.TLSConfig, c.DialTimeout)
	return c, nil
}

// readDB reads the database from the path or from the parameter, not both.
func (c *conn) readDB(u *locker.URL, kind string) error {
	db := u.Param("db", "")
	if path := strings.Trim(u.Path, "/"); u.Scheme != "unix" && path != "" {
		if db != "" {
			return u.Invalid("the database is given twice, as path and as parameter db")
		}
		db = path
	}
	if db == "" {
		return nil
	}
	n, err := strconv.ParseUint(db, 10, 16)
	if err != nil {
		return u.Invalid("the database is not a number: write redis://host:6379/0")
	}
	if kind == "cluster" && n != 0 {
		return u.Invalid("a Redis Cluster has only database 0")
	}
	c.DB = int(n)
	return nil
}

func (c *conn) readAddrs(u *locker.URL, kind string) error {
	port := "6379"
	if kind == "sentinel" {
		port = "26379"
	}
	if len(c.Addrs) == 0 {
		return u.Invalid("it has no host: write %s://host:%s", u.Scheme, port)
	}
	if kind == "" && len(c.Addrs) > 1 {
		return u.Invalid("it has more than one host: use redis+cluster or redis+sentinel for a Cluster or " +
			"Sentinels, redlock for independent servers")
	}
	for i, a := range c.Addrs {
		if _, _, err := net.SplitHostPort(a); err != nil {
			c.Addrs[i] = net.JoinHostPort(strings.Trim(a, "[]"), port)
		}
	}
	return nil
}

// client makes the client that the URL's scheme asks for.
func (c *conn) client() redis.UniversalClient {
	switch {
	case c.MasterName != "":
		return redis.NewFailoverClient(c.Failover())
	case c.IsClusterMode:
		return redis.NewClusterClient(c.Cluster())
	}
	simple := c.Simple()
	simple.Network = c.network
	return redis.NewClient(simple)
}
