package redisnode_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/internal/redisnode"
)

// The benchmarks take a lock and release it, beside the same with bare commands (SET NX PX, and a script that deletes what is one's own) through the
// same client. How fast a round trip is changes by a factor of four with where the kernel puts the two processes, so the
// contenders take turns every few milliseconds, and what counts is the ratio.

// pair takes the lock of name and releases it.
type pair func(ctx context.Context, name, value string) error

const deleteOwn = `if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0`

func rawPair(b *testing.B, client redis.Cmdable) pair {
	sha, err := client.ScriptLoad(b.Context(), deleteOwn).Result()
	require.NoError(b, err)
	return func(ctx context.Context, name, value string) error {
		key := redisnode.LockKey("raw " + name)
		if ok, err := client.SetNX(ctx, key, value, 30*time.Second).Result(); err != nil || !ok {
			return fmt.Errorf("SET NX: %v, %w", ok, err)
		}
		return client.EvalSha(ctx, sha, []string{key}, value).Err()
	}
}

func nodePair(node *redisnode.Node, token bool) pair {
	return func(ctx context.Context, name, value string) error {
		a, err := node.Acquire(ctx, redisnode.Request{Name: name, Value: value, TTL: 30 * time.Second, Token: token})
		if err != nil || !a.Granted {
			return fmt.Errorf("acquire: %+v, %w", a, err)
		}
		state, err := node.Release(ctx, name, value)
		if err != nil || state != redisnode.Mine {
			return fmt.Errorf("release: %v, %w", state, err)
		}
		return nil
	}
}

// BenchmarkPair measures goroutines that each lock a name of their own.
func BenchmarkPair(b *testing.B) {
	server := lab.StartRedis(b)
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()
	auto, err := client.AutoPipeline()
	require.NoError(b, err)
	node := newNode(b, client, nil)

	for _, callers := range []int{1, 4, 16, 64, 256} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			compare(b, callers, []contender{
				{"raw", rawPair(b, client)},
				{"raw-autopipeline", rawPair(b, auto)},
				{"node", nodePair(node, false)},
				{"node-token", nodePair(node, true)},
			})
		})
	}
}

type contender struct {
	name string
	pair pair
}

// compare lets the contenders take turns, each for about a hundred pairs per caller, and reports how many pairs a second each made in
// its median turn, and how that compares to the first.
func compare(b *testing.B, callers int, contenders []contender) {
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	const perTurn = 100
	turns := max(b.N/perTurn/callers, 1)
	speeds := make([][]float64, len(contenders))
	names := make([]string, callers)
	for i := range names {
		names[i] = fmt.Sprintf("name-%d", i)
	}
	turn := func(p pair, n int) time.Duration {
		var all sync.WaitGroup
		begin := time.Now()
		for _, name := range names {
			all.Go(func() {
				for range n {
					if err := p(ctx, name, owner()); err != nil {
						b.Error(err)
						return
					}
				}
			})
		}
		all.Wait()
		return time.Since(begin)
	}
	b.ResetTimer()
	for range turns {
		for i, c := range contenders {
			turn(c.pair, perTurn/10) // the connections of this contender are warm
			took := turn(c.pair, perTurn)
			speeds[i] = append(speeds[i], float64(perTurn*callers)/took.Seconds())
		}
	}
	b.StopTimer()
	b.ReportMetric(0, "ns/op") // of no meaning here
	median := func(v []float64) float64 { slices.Sort(v); return v[len(v)/2] }
	first := median(speeds[0])
	for i, c := range contenders {
		m := median(speeds[i])
		b.ReportMetric(m, c.name+"-pairs/s")
		if i > 0 {
			b.ReportMetric(m/first, c.name+"/raw")
		}
	}
}
