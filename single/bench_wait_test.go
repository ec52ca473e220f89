package single_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/internal/waiting"
	"github.com/golockers/locker/single"
)

// BenchmarkWaiters1000 is 1,000 goroutines of one process that wait for one
// name while nothing changes: what the server hears of them.
func BenchmarkWaiters1000(b *testing.B) {
	const window = 5 * time.Second
	s := newBench(b)
	b.Run("locker", func(b *testing.B) {
		ctx, cancel := context.WithCancel(b.Context())
		// Its renewals would be counted too.
		holder, err := s.client(b, locker.DefaultTTL).Lock(ctx, "job", locker.TTL(time.Hour))
		require.NoError(b, err)
		wait := waiting.Start(ctx, s.client(b, locker.DefaultTTL), "job", 1000, 0)
		<-wait.Ready
		for b.Loop() {
			before := s.server.Commands(b)
			time.Sleep(window) // what is measured is a rate
			sent := s.server.Commands(b).Since(before)
			b.ReportMetric(float64(requests(sent))/window.Seconds(), "commands/s")
		}
		b.ReportMetric(0, "ns/op")
		cancel()
		wait.Done.Wait()
		require.NoError(b, holder.Unlock(context.Background()))
	})
}

// requests is how many commands came from clients. What scripts call is counted
// by the server as well.
func requests(c lab.Commands) int64 {
	total := int64(0)
	for name, n := range c {
		if !slices.Contains([]string{"mget", "time", "set", "pttl", "pexpire", "exists", "del", "publish"}, name) {
			total += n
		}
	}
	return total
}

// BenchmarkHandOver is the time from the release in one process to the grant in
// another, where 1,000 goroutines wait; raw is a message to one goroutine there,
// which then takes the lock.
func BenchmarkHandOver(b *testing.B) {
	s := newBench(b)
	release, err := s.rdb.ScriptLoad(b.Context(),
		`redis.call('PUBLISH', KEYS[1], '') return redis.call('DEL', KEYS[1])`).Result()
	require.NoError(b, err)
	ping := func(ctx context.Context) error { return s.rdb.Exists(ctx, "nothing").Err() }
	for range turns {
		b.Run("raw", func(b *testing.B) {
			child := lab.StartChild(b, "wait", "raw", s.server.Addr())
			waiting.HandOver(b, child, ping, func(ctx context.Context) (func(context.Context) error, error) {
				unlock := func(ctx context.Context) error {
					return s.rdb.EvalSha(ctx, release,
						[]string{"raw:job"}).Err()
				}
				return unlock, s.rdb.SetNX(ctx, "raw:job", "parent", time.Minute).Err()
			})
		})
		b.Run("locker", func(b *testing.B) {
			waiting.HandOver(b, lab.StartChild(b, "wait", "locker", s.server.Addr()), ping, waiting.OfClient(s.locks))
		})
	}
}

// waitInChild is the other process of BenchmarkHandOver.
func waitInChild(p *lab.Parent) {
	rdb := redis.NewClient(&redis.Options{Addr: p.Args[1]})
	takeOver := takeOverLocker
	if p.Args[0] == "raw" {
		takeOver = takeOverRaw
	}
	waiting.Play(p, takeOver(rdb))
}

func takeOverLocker(rdb *redis.Client) func(waiting func()) time.Time {
	backend, err := single.New(rdb, nil)
	if err != nil {
		panic(err)
	}
	return waiting.TakeOver(locker.New(backend, nil), 0)
}

func takeOverRaw(rdb *redis.Client) func(waiting func()) time.Time {
	ctx := context.Background()
	sub := rdb.Subscribe(ctx, "raw:job")
	if _, err := sub.Receive(ctx); err != nil { // the confirmation
		panic(err)
	}
	return func(waiting func()) time.Time {
		waiting()
		if _, err := sub.ReceiveMessage(ctx); err != nil {
			panic(err)
		}
		if ok, err := rdb.SetNX(ctx, "raw:job", "child", time.Minute).Result(); err != nil || !ok {
			panic(fmt.Sprint("SET NX: ", ok, err))
		}
		got := time.Now()
		if err := rdb.Del(ctx, "raw:job").Err(); err != nil {
			panic(err)
		}
		return got
	}
}
