package redisnode

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// Server describes one master behind a Node. Fields that the server does not tell (or not to this user) are zero.
type Server struct {
	Addr      string
	Product   string // "redis", "valkey", …
	Version   string
	RunID     string
	Role      string // "master"; anything else cannot keep locks
	Uptime    time.Duration
	Replicas  int    // connected now
	MaxMemory int64  // bytes; 0: no limit
	Eviction  string // maxmemory-policy
}

// MayEvict reports that the server may throw lock keys away to make room: any policy but noeviction may, since all locks have a TTL, as soon
// as there is a limit.
func (s Server) MayEvict() bool {
	return s.MaxMemory > 0 && s.Eviction != "" && s.Eviction != "noeviction"
}

// Servers asks each master about itself (on a Cluster all of them, otherwise one). A user who may not run INFO gets an
// *Error with Refused set: the lock works all the same.
func (n *Node) Servers(ctx context.Context) ([]Server, error) {
	servers, err := inBackground(n, ctx, func() ([]Server, error) {
		var mu sync.Mutex
		var all []Server
		look := func(ctx context.Context, client redis.UniversalClient, addr string) error {
			text, err := client.Info(ctx).Result()
			if err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			all = append(all, parseInfo(addr, text))
			return nil
		}
		cluster, ok := n.client.(*redis.ClusterClient)
		if !ok {
			err := look(n.ctx, n.client, n.addr)
			return all, err
		}
		err := cluster.ForEachMaster(n.ctx, func(ctx context.Context, shard *redis.Client) error {
			return look(ctx, shard, shard.Options().Addr)
		})
		return all, err
	})
	if err != nil {
		return nil, n.complete(err, "info", "")
	}
	return servers, nil
}

// parseInfo reads the reply to INFO.
func parseInfo(addr, text string) Server {
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
	}
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
	return s
}
