package single

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/oneline"
	"github.com/golockers/locker/internal/redisnode"
)

// Openers are the URL schemes of this package.
var Openers = driver.Openers{
	"redis":           Open,
	"rediss":          Open,
	"unix":            Open,
	"redis+sentinel":  Open,
	"rediss+sentinel": Open,
	"redis+cluster":   Open,
	"rediss+cluster":  Open,
}

// Open is the [driver.Opener] of this package, for the schemes redis, rediss,
// unix, redis+sentinel, rediss+sentinel, redis+cluster and rediss+cluster; see
// the package documentation. It connects once, so that a wrong address or
// password is told at once.
func Open(ctx context.Context, u *driver.URL, opts driver.Settings) (driver.Backend, error) {
	o := Options{Timeout: u.Duration("timeout", 0)}
	conn, err := connOptions(u, o.Timeout)
	if err == nil {
		err = u.Check()
	}
	if err != nil {
		return nil, err
	}
	client := redis.NewUniversalClient(conn)
	b, err := New(client, &o)
	if err != nil {
		return nil, oneline.Join(fmt.Errorf("%w: %s: %w", driver.ErrInvalid, u, err), client.Close())
	}
	b.client, b.prefix = client, opts.Prefix
	if err := b.contact(ctx, opts.Logger); err != nil {
		err = fmt.Errorf("%s: %w%s", u, err, redisnode.Hint(err, conn.TLSConfig != nil, "redis", "rediss"))
		return nil, oneline.Join(err, b.Close())
	}
	return b, nil
}

// contact warns of servers that may throw lock keys away, if they may be asked, and asks about a lock that the user
// may have.
func (b *Backend) contact(ctx context.Context, log *slog.Logger) error {
	servers, _ := b.node.Servers(ctx)
	for _, s := range servers {
		if err := b.node.Single(ctx, s); err != nil {
			return err
		}
		if s.MayEvict() && log != nil {
			log.Warn("single: the server may evict locks when its memory is full: set maxmemory-policy noeviction",
				"server", s.Addr, "maxmemory-policy", s.Eviction)
		}
	}
	_, err := b.Inspect(ctx, b.prefix+"locker0")
	return err
}

// connOptions is what a URL says about the connections.
func connOptions(u *driver.URL, timeout time.Duration) (*redis.UniversalOptions, error) {
	base, kind, _ := strings.Cut(u.Scheme, "+")
	db, path, port := u.Param("db", ""), strings.Trim(u.Path, "/"), "6379"
	if kind == "sentinel" {
		port = "26379"
	}
	switch {
	case base == "unix" && (path == "" || len(u.Hosts) > 0):
		return nil, u.Invalid("write the path of the socket with three slashes, as in unix:///run/redis.sock")
	case base == "unix":
	case len(u.Hosts) == 0:
		return nil, u.Invalid("it has no host: write %s://host:%s", u.Scheme, port)
	case kind == "" && len(u.Hosts) > 1:
		return nil, u.Invalid("it has more than one host: use redis+cluster or redis+sentinel for a Cluster or " +
			"Sentinels, redlock for independent servers")
	case path != "" && db != "":
		return nil, u.Invalid("the database is given twice, as path and as parameter db")
	case path != "":
		db = path
	}
	if timeout == 0 {
		timeout = defaultTimeout
	}
	c, err := redisnode.FromURL(u, port, db, base == "rediss", timeout)
	if err != nil {
		return nil, err
	}
	c.IsClusterMode = kind == "cluster"
	switch {
	case base == "unix":
		c.Addrs = []string{u.Path}
	case c.IsClusterMode && c.DB != 0:
		return nil, u.Invalid("a Redis Cluster has only database 0")
	case kind == "sentinel":
		c.SentinelUsername = u.Param("sentinel_username", "")
		c.SentinelPassword = u.Param("sentinel_password", "")
		if c.MasterName = u.Param("master_name", ""); c.MasterName == "" {
			return nil, u.Invalid("name the master that the Sentinels watch: ?master_name=…")
		}
	}
	return c, nil
}
