package redisnode

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/golockers/locker/driver"
)

// Server describes one master behind a Node. Fields that the server does not tell
// (or not to this user) are zero.
type Server struct {
	Addr      string
	Product   string // "redis", "valkey", …
	Version   string
	RunID     string
	Role      string        // "master"; anything else cannot keep locks
	Uptime    time.Duration // by the server's wall clock, in whole seconds, and up to a second too long
	Replicas  int           // connected now
	MaxMemory int64         // bytes; 0: no limit
	Eviction  string        // maxmemory-policy
	Cluster   bool          // it is a node of a Cluster
	AOF       string        // "0" or "1": whether there is an append-only file
	Fsync     string        // appendfsync, if there is such a file and the user may ask
	Clock     time.Time     // the server's
}

// Supported is an error if the server is older than 7.0: it may keep scripts over a restart, on whose loss the
// restart guard of package redlock rests, and has no shard channels.
func (s Server) Supported() error {
	if major, err := strconv.Atoi(strings.Split(s.Version, ".")[0]); err == nil && major < 7 {
		return tooOldError(s.Product + " " + s.Version)
	}
	return nil
}

// MayEvict reports that the server may throw lock keys away to make room: any
// policy but noeviction may, since all locks have a TTL, as soon as there is a
// limit.
func (s Server) MayEvict() bool {
	return s.MaxMemory > 0 && s.Eviction != "" && s.Eviction != "noeviction"
}

// Findings are what a [driver.Checker] says of one server. forgets is how much it matters that a restart forgets
// locks: less than a warning where a restart guard keeps such a server out.
func (s Server) Findings(forgets driver.Severity) []driver.Finding {
	finding := func(what, found string, bad bool, severity driver.Severity, advice string) driver.Finding {
		f := driver.Finding{What: what + " of " + s.Addr, Found: found}
		if bad {
			f.Severity, f.Advice = severity, advice
		}
		return f
	}
	then := ""
	if forgets < driver.SeverityWarning {
		then = ", and the server has no vote until those have ended; to have it vote at once"
	}
	all := []driver.Finding{
		finding("version", s.Product+" "+s.Version, s.Supported() != nil, driver.SeverityProblem,
			"the oldest that are supported are Redis 7.0 and Valkey 7.2: upgrade the server"),
		finding("role", s.Role, s.Role != "master", driver.SeverityProblem,
			"locks live on a master: connect to that, or by way of Sentinel"),
		finding("maxmemory-policy", fmt.Sprintf("%s, maxmemory %d", s.Eviction, s.MaxMemory), s.MayEvict(),
			driver.SeverityProblem,
			"the server may throw locks away when its memory is full: set maxmemory-policy noeviction"),
	}
	if s.AOF != "" {
		all = append(all, finding("appendonly", map[string]string{"0": "no", "1": "yes"}[s.AOF], s.AOF != "1", forgets,
			"a restart forgets the locks that are held"+then+": set appendonly yes and appendfsync always"))
	}
	if s.Fsync != "" {
		all = append(all, finding("appendfsync", s.Fsync, s.Fsync != "always", forgets,
			"a host that crashes forgets the last locks and tokens"+then+": set appendfsync always"))
	}
	return all
}

// Servers asks each master about itself (on a Cluster all of them, otherwise one). A user who may not run INFO gets
// an *Error with Refused set: the lock works all the same.
func (n *Node) Servers(ctx context.Context) (all []Server, err error) {
	var mu sync.Mutex
	err = n.eachMaster(ctx, "info", func(master *redis.Client, addr string) error {
		s, err := Ask(ctx, n, "info", master, func(ctx context.Context, c *redis.Client) (s Server, err error) {
			text, err := c.Info(ctx).Result()
			if err != nil {
				return s, err
			}
			s = ParseInfo(addr, text)
			if s.AOF == "1" { // whoever may not ask it is told nothing of it
				s.Fsync = c.ConfigGet(ctx, "appendfsync").Val()["appendfsync"]
			}
			return s, nil
		})
		if err == nil {
			mu.Lock()
			defer mu.Unlock()
			all = append(all, s)
		}
		return err
	})
	return all, err
}

// Single is an error for a server that has only some of the keys of a Node that takes it for a server of its own.
func (n *Node) Single(ctx context.Context, s Server) error {
	if s.Cluster && !n.IsCluster() && !(n.OneSlot && n.whole(ctx)) {
		return Failed("info", s.Addr, fmt.Errorf("%w: %s", errClusterNode, adviceCluster))
	}
	return nil
}

// whole reports whether the server has all slots of its Cluster, or does not tell this user.
func (n *Node) whole(ctx context.Context) bool {
	info, err := n.one.server.ClusterInfo(ctx).Result()
	return err != nil || strings.Contains(info, "cluster_size:1\r") && strings.Contains(info, "cluster_slots_assigned:16384\r")
}

// eachMaster calls f for the server, or on a Cluster for each master, all at the same time.
func (n *Node) eachMaster(ctx context.Context, op string, f func(master *redis.Client, addr string) error) error {
	masters, failed := n.masters(ctx, op)
	if failed != nil {
		return failed
	}
	var err error
	errs := make(chan error, len(masters))
	for _, master := range masters {
		go func() { errs <- f(master, n.laneOf(master).addr) }()
	}
	for range masters {
		err = cmp.Or(err, <-errs)
	}
	return err
}

// masters returns the client of the server, or on a Cluster those of all masters: which they are the driver asks
// first, with a patience of its own.
func (n *Node) masters(ctx context.Context, op string) ([]*redis.Client, *Error) {
	if n.cluster == nil {
		return []*redis.Client{n.client.(*redis.Client)}, nil
	}
	return patiently(ctx, n, op, n.Addr, func(context.Context) (masters []*redis.Client, err error) {
		var mu sync.Mutex
		err = Recovered(func() error {
			return n.cluster.ForEachMaster(n.ctx, func(_ context.Context, master *redis.Client) error {
				mu.Lock()
				defer mu.Unlock()
				masters = append(masters, master)
				return nil
			})
		})
		return masters, err
	})
}

// ParseInfo reads the reply to INFO.
func ParseInfo(addr, text string) Server {
	field := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimRight(line, "\r\n"), ":"); ok {
			field[name] = value
		}
	}
	s := Server{
		Addr:     addr,
		Product:  "redis",
		Version:  field["redis_version"],
		RunID:    field["run_id"],
		Role:     field["role"],
		Eviction: field["maxmemory_policy"],
		AOF:      field["aof_enabled"],
	}
	// A section of INFO has one of these, and Valkey's name for the second is another.
	s.Cluster = field["cluster_enabled"] == "1" || field["redis_mode"] == "cluster" ||
		field["server_mode"] == "cluster"
	if v := field["server_name"]; v != "" {
		s.Product = v
	}
	if v := field[s.Product+"_version"]; v != "" {
		s.Version = v // Valkey also says which Redis it is compatible with
	}
	seconds, _ := strconv.ParseInt(field["uptime_in_seconds"], 10, 64)
	s.Uptime = time.Duration(seconds) * time.Second
	s.Replicas, _ = strconv.Atoi(field["connected_slaves"])
	s.MaxMemory, _ = strconv.ParseInt(field["maxmemory"], 10, 64)
	if µs, err := strconv.ParseInt(field["server_time_usec"], 10, 64); err == nil {
		s.Clock = time.UnixMicro(µs)
	}
	return s
}

// scanAtOnce is how many keys the server looks at for one reply of SCAN.
const scanAtOnce = 500

// Names calls found with the names under which there is a lock or somebody waits, of those that begin with prefix: as
// the server tells them, some at a time, and each once. It goes on until found returns false. On a Cluster, the
// names on a master that does not answer are missing, and it is the error.
func (n *Node) Names(ctx context.Context, prefix string, found func(names []string) (more bool)) error {
	masters, failed := n.masters(ctx, "list")
	if failed != nil {
		return failed
	}
	var err error
	seen := map[string]bool{}
	for _, master := range masters {
		if ctx.Err() != nil { // what has been found is not all
			return cmp.Or(err, error(&Error{Op: "list", Addr: n.Addr, Err: ctx.Err()}))
		}
		more, failed := n.names(ctx, master, prefix, seen, found)
		if err = cmp.Or(err, failed); !more {
			break
		}
	}
	return err
}

// names is Names for one master, which may tell a name more than once.
func (n *Node) names(ctx context.Context, master *redis.Client, prefix string, seen map[string]bool,
	found func(names []string) bool,
) (more bool, err error) {
	pattern := layout + globEscape.Replace(escape.Replace(prefix)) + "*"
	type page struct {
		keys []string
		next uint64
	}
	for cursor := uint64(0); ; {
		p, err := Ask(ctx, n, "list", master, func(ctx context.Context, c *redis.Client) (p page, err error) {
			p.keys, p.next, err = c.Scan(ctx, cursor, pattern, scanAtOnce).Result()
			return p, err
		})
		if err != nil {
			return true, err
		}
		var names []string
		for _, key := range p.keys {
			name, ok := NameOf(strings.TrimSuffix(key, waitSuffix))
			if ok && strings.HasPrefix(name, prefix) && !seen[name] {
				seen[name] = true
				names = append(names, name)
			}
		}
		if len(names) > 0 && !found(names) {
			return false, nil
		}
		if cursor = p.next; cursor == 0 {
			return true, nil
		}
	}
}

// globEscape makes a SCAN pattern match what it says.
var globEscape = strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`, "]", `\]`)
