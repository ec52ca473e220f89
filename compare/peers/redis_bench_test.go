package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"

	"github.com/golockers/locker"
	"github.com/golockers/locker/internal/contest"
	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/redlock"
	"github.com/golockers/locker/single"
)

// Each contender is one library, or the raw commands of its driver, and `make bench` compares them.

func TestMain(m *testing.M) { lab.Main(m, lab.Roles{"contend": contendInChild}) }

// taker takes a lock of that name.
type taker func(ctx context.Context, name string) (release func(context.Context) error, err error)

// pair takes a lock and gives it back.
func (take taker) pair(ctx context.Context, name string) error {
	release, err := take(ctx, name)
	if err != nil {
		return err
	}
	return release(ctx)
}

// contender is one library in a comparison.
type contender struct {
	name string
	take taker
}

// turns is how often contenders take turns in one run: what the machine gives changes from second to second.
const turns = 3

// compete has the contenders take turns with so many goroutines, each with a name of its own.
func compete(b *testing.B, goroutines int, contenders ...contender) {
	for range turns {
		for _, c := range contenders {
			b.Run(c.name, func(b *testing.B) {
				ctx, cancel := context.WithTimeout(b.Context(), time.Minute) // a contender that hangs fails
				defer cancel()
				pair := func(i int) error { return c.take.pair(ctx, "job-"+strconv.Itoa(i)) }
				for _, n := range []int{max(200, 10*goroutines), b.N} { // connections and scripts first
					b.ResetTimer()
					if err := contest.Spread(n, goroutines, pair); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// processTime is the processor time that this process has used: unlike time, that is much the same on a
// machine that has other work.
func processTime() time.Duration {
	var r syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &r)
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

func heapInUse() int64 {
	runtime.GC()
	runtime.GC() // what was only reachable from pools
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// newRedis returns a client of its own for each contender: connections that one
// leaves are not another's.
func newRedis(b testing.TB, addr string) *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: addr})
	b.Cleanup(func() { _ = c.Close() })
	return c
}

func autoPipeline(b *testing.B, addr string) *redis.AutoPipeliner {
	auto, err := newRedis(b, addr).AutoPipeline()
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = auto.Close() })
	return auto
}

func rawRedis(b *testing.B, client redis.Cmdable) taker {
	const deleteOwn = `if redis.call('GET', KEYS[1]) == ARGV[1] then ` +
		`return redis.call('DEL', KEYS[1]) end return 0`
	sha, err := client.ScriptLoad(b.Context(), deleteOwn).Result()
	if err != nil {
		b.Fatal(err)
	}
	return func(ctx context.Context, name string) (func(context.Context) error, error) {
		key, owner := "raw:"+name, rand.Text()+rand.Text()[:14] // 40 bytes
		if ok, err := client.SetNX(ctx, key, owner, locker.DefaultTTL).Result(); err != nil || !ok {
			return nil, fmt.Errorf("SET NX: %v, %w", ok, err)
		}
		return func(ctx context.Context) error { return client.EvalSha(ctx, sha, []string{key}, owner).Err() }, nil
	}
}

func ofRedislock(client redislock.RedisClient) taker {
	locks := redislock.New(client)
	return func(ctx context.Context, name string) (func(context.Context) error, error) {
		l, err := locks.Obtain(ctx, "redislock:"+name, locker.DefaultTTL,
			&redislock.Options{RetryStrategy: redislock.LinearBackoff(time.Millisecond)})
		if err != nil {
			return nil, err
		}
		return l.Release, nil
	}
}

func ofRedsync(clients ...redis.UniversalClient) taker {
	var pools []redsyncredis.Pool
	for _, c := range clients {
		pools = append(pools, goredis.NewPool(c))
	}
	rs := redsync.New(pools...)
	return func(ctx context.Context, name string) (func(context.Context) error, error) {
		m := rs.NewMutex("redsync:"+name, redsync.WithExpiry(locker.DefaultTTL))
		return func(ctx context.Context) error {
			_, err := m.UnlockContext(ctx)
			return err
		}, m.LockContext(ctx)
	}
}

// newRueidislock beats as often as a locker.Client does.
func newRueidislock(b testing.TB, addr string, ttl time.Duration) rueidislock.Locker {
	locks, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption: rueidis.ClientOption{InitAddress: []string{addr}}, KeyValidity: ttl,
		ExtendInterval: ttl / 3, KeyMajority: 1, NoLoopTracking: true,
	})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(locks.Close)
	return locks
}

func ofRueidislock(locks rueidislock.Locker) taker {
	return func(ctx context.Context, name string) (func(context.Context) error, error) {
		_, release, err := locks.WithContext(ctx, name)
		return func(context.Context) error { release(); return nil }, err
	}
}

// ours is a Client on a backend that it closes.
func ours(b testing.TB, ttl time.Duration, backend locker.Backend, err error) *locker.Client {
	if err != nil {
		b.Fatal(err)
	}
	c := locker.New(backend, &locker.Options{TTL: ttl})
	b.Cleanup(func() {
		_ = c.Close()
		_ = backend.Close()
	})
	return c
}

func newSingle(b testing.TB, addr string, ttl time.Duration) *locker.Client {
	backend, err := single.New(newRedis(b, addr), nil)
	return ours(b, ttl, backend, err)
}

func newRedlock(b testing.TB, ttl time.Duration, addrs []string) *locker.Client {
	var clients []*redis.Client
	for _, addr := range addrs {
		clients = append(clients, newRedis(b, addr))
	}
	backend, err := redlock.New(clients, &redlock.Options{NoRestartGuard: true}) // the servers are new
	return ours(b, ttl, backend, err)
}

func ofLocker(c *locker.Client) taker {
	return func(ctx context.Context, name string) (func(context.Context) error, error) {
		l, err := c.Lock(ctx, name)
		if err != nil {
			return nil, err
		}
		return l.Unlock, nil
	}
}

// BenchmarkRedisAlone is one caller on one Redis.
func BenchmarkRedisAlone(b *testing.B) {
	addr := lab.StartRedis(b).Addr()
	compete(b, 1,
		contender{"raw", rawRedis(b, newRedis(b, addr))},
		contender{"locker", ofLocker(newSingle(b, addr, locker.DefaultTTL))},
		contender{"redislock", ofRedislock(newRedis(b, addr))},
		contender{"redsync", ofRedsync(newRedis(b, addr))},
		contender{"rueidislock", ofRueidislock(newRueidislock(b, addr, locker.DefaultTTL))},
	)
}

// BenchmarkRedisCallers256 is 256 goroutines with names of their own on one Redis.
// Raw commands and peers are given go-redis's own pipelining, where they take it.
func BenchmarkRedisCallers256(b *testing.B) {
	addr := lab.StartRedis(b).Addr()
	compete(b, 256,
		contender{"raw", rawRedis(b, autoPipeline(b, addr))},
		contender{"locker", ofLocker(newSingle(b, addr, locker.DefaultTTL))},
		contender{"redsync", ofRedsync(autoPipeline(b, addr))},
		contender{"redislock", ofRedislock(autoPipeline(b, addr))},
		contender{"rueidislock", ofRueidislock(newRueidislock(b, addr, locker.DefaultTTL))},
	)
}

// five are the addresses of five Redis.
func five(b *testing.B) (addrs []string) {
	for range 5 {
		addrs = append(addrs, lab.StartRedis(b).Addr())
	}
	return addrs
}

// BenchmarkRedlockCallers256 is 256 goroutines with names of their own on five Redis.
func BenchmarkRedlockCallers256(b *testing.B) {
	servers := five(b)
	var plain, piped []redis.UniversalClient
	for _, addr := range servers {
		plain, piped = append(plain, newRedis(b, addr)), append(piped, autoPipeline(b, addr))
	}
	compete(b, 256,
		contender{"redsync", ofRedsync(plain...)},
		contender{"locker", ofLocker(newRedlock(b, locker.DefaultTTL, servers))},
		contender{"redsync-autopipeline", ofRedsync(piped...)},
	)
}

// BenchmarkRedlockAlone is one caller on five Redis, beside the raw commands on all of them at the same time.
// Each takes new names: nodes that the last release has not come to yet are no contenders.
func BenchmarkRedlockAlone(b *testing.B) {
	servers := five(b)
	var raw []taker
	for _, addr := range servers {
		raw = append(raw, rawRedis(b, newRedis(b, addr)))
	}
	var n atomic.Int64
	fresh := func(take taker) taker {
		return func(ctx context.Context, name string) (func(context.Context) error, error) {
			return take(ctx, name+"-"+strconv.FormatInt(n.Add(1), 10))
		}
	}
	compete(b, 1,
		contender{"raw", fresh(func(ctx context.Context, name string) (func(context.Context) error, error) {
			return func(context.Context) error { return nil }, contest.Spread(len(raw), len(raw), func(n int) error {
				return raw[n].pair(ctx, name)
			})
		})},
		contender{"locker", fresh(ofLocker(newRedlock(b, locker.DefaultTTL, servers)))},
	)
}

// BenchmarkRedisHeld10000 is what 10,000 leases cost that are held and renewed every three seconds: in
// processor time of the client for one renewal, which stands for its speed here.
func BenchmarkRedisHeld10000(b *testing.B) {
	const leases, ttl, cycle = 10_000, 9 * time.Second, 3 * time.Second
	servers := five(b)
	for _, name := range []string{"single/rueidislock", "single/locker", "redlock/locker"} {
		b.Run(name, func(b *testing.B) {
			var hold taker
			switch name {
			case "single/rueidislock":
				hold = ofRueidislock(newRueidislock(b, servers[0], ttl))
			case "single/locker":
				hold = ofLocker(newSingle(b, servers[0], ttl))
			default:
				hold = ofLocker(newRedlock(b, ttl, servers))
			}
			if _, err := hold(b.Context(), "warm"); err != nil {
				b.Fatal(err)
			}
			heap, began := heapInUse(), time.Now()
			// Evenly over the cycle: leases taken in a burst share their renewals anyway.
			each(b, leases, 64, func(i int) error {
				time.Sleep(cycle*time.Duration(i)/leases - time.Since(began))
				_, err := hold(b.Context(), "job-"+strconv.Itoa(i))
				return err
			})
			heap = heapInUse() - heap
			for b.Loop() {
				before := processTime()
				time.Sleep(2 * cycle) // what is measured is a rate
				b.ReportMetric(float64((processTime()-before).Nanoseconds())/(2*leases), "ns/op")
			}
			b.ReportMetric(float64(heap)/1e6, "heap-MB")
		})
	}
}

// each does something for each number below n on so many goroutines.
func each(b *testing.B, n, goroutines int, do func(i int) error) {
	b.Helper()
	var next atomic.Int64
	if err := contest.Spread(n, goroutines, func(int) error { return do(int(next.Add(1)) - 1) }); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkRedisWaiting100000 is what 100,000 names that one Client waits for cost
// while nothing happens, and how long one of them takes to be handed over then.
func BenchmarkRedisWaiting100000(b *testing.B) {
	const names = 100_000
	s := lab.StartRedis(b)
	holder, waiting := newSingle(b, s.Addr(), 10*time.Minute), newSingle(b, s.Addr(), 10*time.Minute)
	held := make([]*locker.Lease, names)
	got := make(chan time.Time, names)
	ctx, cancel := context.WithCancel(b.Context())
	each(b, names, 256, func(i int) (err error) {
		held[i], err = holder.Lock(ctx, "job-"+strconv.Itoa(i))
		return err
	})
	var all sync.WaitGroup
	for n := range names {
		all.Go(func() {
			l, err := waiting.Lock(ctx, "job-"+strconv.Itoa(n))
			if err != nil {
				return
			}
			got <- time.Now()
			_ = l.Unlock(ctx)
		})
	}
	b.Run("locker", func(b *testing.B) {
		began := time.Now()
		for quiet := 0; quiet < 3; {
			u := processTime()
			time.Sleep(time.Second)
			quiet++
			if processTime()-u > 500*time.Millisecond {
				quiet = 0
			}
			if time.Since(began) > 2*time.Minute {
				b.Fatal("it does not settle")
			}
		}
		settled := time.Since(began) - 3*time.Second
		next := 0
		for b.Loop() {
			const window = 5 * time.Second
			u := processTime()
			time.Sleep(window)
			b.ReportMetric(100*(processTime()-u).Seconds()/window.Seconds(), "%-of-a-core")
			var took []time.Duration
			for range 200 {
				released := time.Now()
				if err := held[next].Unlock(ctx); err != nil {
					b.Fatal(err)
				}
				took = append(took, (<-got).Sub(released))
				next++
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds()), "hand-over-µs")
		}
		b.ReportMetric(settled.Seconds(), "settling-s")
		b.ReportMetric(0, "ns/op")
	})
	cancel()
	all.Wait()
}

// BenchmarkRedisOneName is 4 processes with 16 callers each that want the same name.
func BenchmarkRedisOneName(b *testing.B) {
	const processes, window = 4, 2 * time.Second
	for range turns {
		for _, who := range []string{"redislock", "locker"} {
			b.Run(who, func(b *testing.B) {
				s := lab.StartRedis(b) // of its own: a child that is killed leaves its last lock
				programs := contest.Start(b, processes, "contend", who, s.Addr(), window.String())
				for b.Loop() {
					for _, c := range programs {
						c.Send(b, "go")
					}
					sum := 0
					for _, c := range programs {
						n, _ := strconv.Atoi(c.Expect(b, "had", time.Minute))
						sum += n
					}
					b.ReportMetric(float64(window.Nanoseconds())/float64(sum), "ns/op")
				}
			})
		}
	}
}

// contendInChild is one process of BenchmarkRedisOneName.
func contendInChild(p *lab.Parent) {
	window, _ := time.ParseDuration(p.Args[2])
	take := ofLocker(newSingle(new(testing.B), p.Args[1], locker.DefaultTTL))
	if p.Args[0] == "redislock" {
		take = ofRedislock(newRedis(new(testing.B), p.Args[1]))
	}
	for p.Say("ready"); ; {
		p.Hear()
		ctx, cancel := context.WithTimeout(context.Background(), window)
		var all sync.WaitGroup
		var had atomic.Int64
		for range 16 {
			all.Go(func() {
				for release, err := take(ctx, "one"); err == nil; release, err = take(ctx, "one") {
					_ = release(context.Background())
					had.Add(1)
				}
			})
		}
		all.Wait()
		cancel()
		p.Say("had %d", had.Load())
	}
}
