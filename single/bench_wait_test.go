package single_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/internal/lab"
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
		waiting := s.client(b, locker.DefaultTTL)
		wait := startWaiting(ctx, waiting, "job", 1000)
		<-wait.ready
		for b.Loop() {
			before := s.server.Commands(b)
			time.Sleep(window) // what is measured is a rate
			sent := s.server.Commands(b).Since(before)
			b.ReportMetric(float64(requests(sent))/window.Seconds(), "commands/s")
		}
		b.ReportMetric(1, "target:commands/s")
		b.ReportMetric(0, "ns/op")
		cancel()
		wait.done.Wait()
		require.NoError(b, holder.Unlock(context.Background()))
	})
}

// requests is how many commands came from clients. What scripts call is counted
// by the server as well.
func requests(c lab.Commands) int64 {
	n := c.Total
	for _, inner := range []string{"mget", "time", "set", "pttl", "pexpire", "exists", "del", "publish"} {
		n -= c.ByName[inner]
	}
	return n
}

// waiters wait for one name.
type waiters struct {
	ready chan struct{} // closed when all of them wait and one has subscribed
	got   chan time.Time
	done  sync.WaitGroup
}

// startWaiting has so many goroutines wait for name until ctx ends.
func startWaiting(ctx context.Context, c *locker.Client, name string, goroutines int) *waiters {
	w := &waiters{ready: make(chan struct{}), got: make(chan time.Time, goroutines)}
	refused := c.Stats().Refused
	for range goroutines {
		w.done.Go(func() {
			l, err := c.Lock(ctx, name)
			if err != nil {
				return
			}
			w.got <- time.Now()
			<-ctx.Done()
			_ = l.Unlock(context.WithoutCancel(ctx))
		})
	}
	w.done.Go(func() {
		for ctx.Err() == nil {
			// The second refusal comes after the subscription.
			if now := c.Stats(); now.Waiting == goroutines && now.Refused >= refused+2 {
				close(w.ready)
				return
			}
			time.Sleep(time.Millisecond)
		}
	})
	return w
}

// BenchmarkHandOver is the time from the release in one process to the grant in
// another, where 1,000 goroutines wait; raw is a message to one goroutine there,
// which then takes the lock. Both are compared to one round trip, measured under
// the same conditions: after a pause, in which processors go to sleep and caches
// grow cold.
func BenchmarkHandOver(b *testing.B) {
	s := newBench(b)
	release, err := s.rdb.ScriptLoad(b.Context(),
		`redis.call('PUBLISH', KEYS[1], '') return redis.call('DEL', KEYS[1])`).Result()
	require.NoError(b, err)
	for range turns {
		b.Run("raw", func(b *testing.B) {
			s.handOver(b, func(ctx context.Context) (func(context.Context) error, error) {
				unlock := func(ctx context.Context) error {
					return s.rdb.EvalSha(ctx, release,
						[]string{"raw:job"}).Err()
				}
				return unlock, s.rdb.SetNX(ctx, "raw:job", "parent", time.Minute).Err()
			}, "raw")
		})
		b.Run("locker", func(b *testing.B) {
			s.handOver(b, func(ctx context.Context) (func(context.Context) error, error) {
				l, err := s.locks.Lock(ctx, "job")
				if err != nil {
					return nil, err
				}
				return l.Unlock, nil
			}, "locker")
			b.ReportMetric(3, "target:round-trips")
		})
	}
}

func (s *bench) handOver(b *testing.B, lock func(context.Context) (unlock func(context.Context) error,
	err error), contender string) {
	const pause = time.Millisecond
	ctx := b.Context()
	child := lab.StartChild(b, "wait", contender, s.server.Addr())
	var handOvers, roundTrips []float64
	for b.Loop() {
		unlock, err := lock(ctx)
		require.NoError(b, err)
		child.Send(b, "wait")
		child.Expect(b, "waiting", 10*time.Second)
		time.Sleep(pause)
		began := time.Now()
		require.NoError(b, s.rdb.Exists(ctx, "nothing").Err())
		roundTrips = append(roundTrips, float64(time.Since(began)))

		time.Sleep(pause)
		released := time.Now().UnixNano() // the processes share the wall clock, not the monotonic one
		require.NoError(b, unlock(ctx))
		got, err := strconv.ParseInt(child.Expect(b, "got", 10*time.Second), 10, 64)
		require.NoError(b, err)
		handOvers = append(handOvers, float64(got-released))
	}
	b.ReportMetric(median(handOvers), "ns/op")
	b.ReportMetric(median(handOvers)/median(roundTrips), "round-trips")
}

// waitInChild is the other process of BenchmarkHandOver.
func waitInChild(p *lab.Parent) {
	rdb := redis.NewClient(&redis.Options{Addr: p.Args[1]})
	takeOver := takeOverLocker
	if p.Args[0] == "raw" {
		takeOver = takeOverRaw
	}
	next := takeOver(rdb)
	for {
		p.Hear()
		got := next(func() { p.Say("waiting") })
		p.Say("got %d", got.UnixNano())
	}
}

func takeOverLocker(rdb *redis.Client) func(waiting func()) time.Time {
	backend, err := single.New(rdb, nil)
	if err != nil {
		panic(err)
	}
	c := locker.New(backend, nil)
	return func(waiting func()) time.Time {
		ctx, cancel := context.WithCancel(context.Background())
		w := startWaiting(ctx, c, "job", 1000)
		<-w.ready
		waiting()
		got := <-w.got
		cancel()
		w.done.Wait()
		return got
	}
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

func median(v []float64) float64 {
	slices.Sort(v)
	return v[len(v)/2]
}
