package redlock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/oneline"
	"github.com/golockers/locker/internal/redisnode"
)

// restTime is how long Open waits for the other nodes, once a quorum was reached.
const restTime = 200 * time.Millisecond

// Openers are the URL schemes of this package.
var Openers = driver.Openers{
	"redlock":  Open,
	"redlocks": Open,
}

// Open is the [driver.Opener] of this package, for the schemes redlock and
// redlocks (TLS); see the package documentation. It connects to all nodes, and
// fails if a majority is out of reach or refuses the client, or if two
// addresses lead to the same server. A minority that refuses the client (another
// password, no right to run scripts, another kind of server) is logged as a
// warning, once for each node. Open does not wait for a minority that does
// not answer: what is wrong with nodes that answer more than 200 ms after a
// quorum has is found out by the Acquires after that, and by [Backend.Check].
// Nodes that are kept out of votes by the restart guard are no error.
func Open(ctx context.Context, u *driver.URL, opts driver.Settings) (driver.Backend, error) {
	o := Options{
		NodeTimeout: u.Duration("node_timeout", 0),
		// What all clients have whose URLs say nothing of it, whatever their ttl: a guard of this one
		// alone must not be over before the others' locks are.
		MaxTTL:  driver.DefaultTTL,
		Fencing: u.Bool("fencing", false),
		Logger:  opts.Logger,
	}
	switch s := u.Param("restart_guard", "on"); s {
	case "on":
		if opts.TTL > o.MaxTTL {
			return nil, u.Invalid("restart_guard: a ttl of %v is above %v, the time for which restarted servers "+
				"are kept out: put restart_guard=%v, or the longest ttl of any client, into the URLs of all clients",
				opts.TTL, o.MaxTTL, opts.TTL)
		}
	case "off":
		o.NoRestartGuard, o.MaxTTL = true, 0
	default:
		o.MaxTTL = u.Duration("restart_guard", 0)
	}
	if len(u.Hosts) == 0 {
		return nil, u.Invalid("it has no host: write %s://host1:6379,host2:6379,host3:6379", u.Scheme)
	}
	secure := u.Scheme == "redlocks" || u.Bool("tls", false)
	conn, err := redisnode.FromURL(u, "6379", strings.Trim(u.Path, "/"), secure, requestTimeout)
	if err == nil {
		err = u.Check()
	}
	if err != nil {
		return nil, err
	}
	var clients []*redis.Client
	for _, addr := range conn.Addrs {
		c := conn.Simple()
		c.Addr = addr
		clients = append(clients, redis.NewClient(c))
	}
	b, err := New(clients, &o)
	if err != nil {
		for _, c := range clients {
			_ = c.Close()
		}
		return nil, fmt.Errorf("%s: %w", u, err)
	}
	b.clients, b.prefix = clients, opts.Prefix
	if err := b.lookAtAll(ctx); err != nil {
		err = fmt.Errorf("%s: %w%s", u, err, redisnode.Hint(err, secure, "redlock", "redlocks"))
		return nil, oneline.Join(err, b.Close())
	}
	return b, nil
}

// lookAtAll connects to every node, and reports what cannot work.
func (b *Backend) lookAtAll(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, redisnode.DialTimeout)
	defer cancel()
	b.opening.Store(true)
	reached, causes := 0, b.unanswered()
	for o := range each(limited, b, func(n *node) (*scripts, error) { return n.ready(redisnode.DialTimeout) }) {
		var g *guardedError
		var d *duplicateError
		switch causes[o.node] = o.err; {
		case o.err == nil, errors.As(o.err, &g):
			causes[o.node] = nil
			if reached++; reached == b.quorum {
				time.AfterFunc(restTime, cancel) // for what else Open is to find out
			}
		case errors.As(o.err, &d):
			return fmt.Errorf("%w: %w", driver.ErrInvalid, d)
		}
	}
	if ctx.Err() != nil || reached < b.quorum {
		return b.failure(ctx, b.quorumError("open", "", causes))
	}
	b.opening.Store(false)
	for i, err := range causes {
		b.nodes[i].warn(err)
	}
	return nil
}
