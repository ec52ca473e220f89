package single_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/single"
)

// What a lock costs
// beside the raw commands and other libraries is in compare/peers.

// bench is one server and one go-redis client, which the contenders share.
type bench struct {
	server *lab.Redis
	rdb    *redis.Client
	locks  *locker.Client
}

func newBench(b *testing.B) *bench {
	s := &bench{server: lab.StartRedis(b)}
	s.rdb = redis.NewClient(&redis.Options{Addr: s.server.Addr()})
	b.Cleanup(func() { require.NoError(b, s.rdb.Close()) })
	s.locks = s.client(b, locker.DefaultTTL)
	return s
}

// client returns another Client on the same go-redis client.
func (s *bench) client(b *testing.B, ttl time.Duration) *locker.Client {
	backend, err := single.New(s.rdb, nil)
	require.NoError(b, err)
	c := locker.New(backend, &locker.Options{TTL: ttl})
	b.Cleanup(func() {
		require.NoError(b, c.Close())
		require.NoError(b, backend.Close())
	})
	return c
}

// turns is how often the contenders of a topic take turns in one run: how long a
// round trip takes changes by a factor of four with where the kernel puts the
// processes, and that changes every few seconds.
const turns = 3
