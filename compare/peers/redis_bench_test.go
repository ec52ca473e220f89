package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
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

// redisTime is the processor time that servers have used.
func redisTime(b *testing.B, servers ...*lab.Redis) func() time.Duration {
	return func() (sum time.Duration) {
		for _, s := range servers {
			info := s.Info(b, "cpu")
			for _, kind := range []string{"used_cpu_sys", "used_cpu_user"} {
				seconds, err := strconv.ParseFloat(info[kind], 64)
				if err != nil {
					b.Fatal(err)
				}
				sum += time.Duration(seconds * float64(time.Second))
			}
		}
		return sum
	}
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

// What a hand-over costs without a half of passing (see locker.Passer): each caller acquires in a
// request of its own, or the lock is passed on within a client as ever and is then anybody's.
const noPass, noTurns = "locker-no-pass", "locker-no-turns"

// halved is a backend without a half of passing.
type halved struct {
	*single.Backend
	without string
}

func (b halved) Acquire(ctx context.Context, req locker.Request) (locker.Grant, error) {
	g, err := b.Backend.Acquire(ctx, req)
	return b.halve(g), err
}

func (b halved) halve(g locker.Grant) locker.Grant {
	if passer, ok := g.Hold.(locker.Passer); ok && b.without == noTurns {
		g.Hold = noTurnsHold{g.Hold, passer, b}
	} else if ok {
		g.Hold = struct{ locker.Hold }{g.Hold}
	}
	return g
}

type noTurnsHold struct {
	locker.Hold
	passer locker.Passer
	b      halved
}

func (h noTurnsHold) Pass(ctx context.Context, req locker.Request, yield bool) (locker.Grant, error) {
	if yield {
		return locker.Grant{}, h.Release(ctx)
	}
	g, err := h.passer.Pass(ctx, req, false)
	return h.b.halve(g), err
}

func newSingle(b testing.TB, addr string, ttl time.Duration, without ...string) *locker.Client {
	backend, err := single.New(newRedis(b, addr), nil)
	if err != nil {
		b.Fatal(err)
	}
	c := locker.New(backend, &locker.Options{TTL: ttl})
	if len(without) > 0 && without[0] != "locker" {
		c = locker.New(halved{backend, without[0]}, &locker.Options{TTL: ttl})
	}
	b.Cleanup(func() {
		_ = c.Close()
		_ = backend.Close()
	})
	return c
}

func newRedlock(b testing.TB, ttl time.Duration, servers ...*lab.Redis) *locker.Client {
	var clients []*redis.Client
	for _, s := range servers {
		clients = append(clients, newRedis(b, s.Addr()))
	}
	backend, err := redlock.New(clients, &redlock.Options{NoRestartGuard: true}) // the servers are new
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

// BenchmarkRedisAlone is one caller on one Redis.
func BenchmarkRedisAlone(b *testing.B) {
	s := lab.StartRedis(b)
	compete(b, 1, redisTime(b, s),
		contender{"raw", rawRedis(b, newRedis(b, s.Addr()))},
		contender{"locker", ofLocker(newSingle(b, s.Addr(), locker.DefaultTTL))},
		contender{"redislock", ofRedislock(newRedis(b, s.Addr()))},
		contender{"redsync", ofRedsync(newRedis(b, s.Addr()))},
		contender{"rueidislock", ofRueidislock(newRueidislock(b, s.Addr(), locker.DefaultTTL))},
	)
}

// BenchmarkRedisCallers256 is 256 goroutines with names of their own on one Redis.
// Raw commands and peers are given go-redis's own pipelining, where they take it.
func BenchmarkRedisCallers256(b *testing.B) {
	s := lab.StartRedis(b)
	compete(b, 256, redisTime(b, s),
		contender{"raw", rawRedis(b, autoPipeline(b, s.Addr()))},
		contender{"locker", ofLocker(newSingle(b, s.Addr(), locker.DefaultTTL))},
		contender{"redsync", ofRedsync(autoPipeline(b, s.Addr()))},
		contender{"redislock", ofRedislock(autoPipeline(b, s.Addr()))},
		contender{"rueidislock", ofRueidislock(newRueidislock(b, s.Addr(), locker.DefaultTTL))},
	)
}

// BenchmarkRedisFresh256 is 256 goroutines on one Redis, each lock with a name that was never used.
func BenchmarkRedisFresh256(b *testing.B) {
	s := lab.StartRedis(b)
	compete(b, 256, redisTime(b, s),
		contender{"raw", fresh(rawRedis(b, autoPipeline(b, s.Addr())))},
		contender{"locker", fresh(ofLocker(newSingle(b, s.Addr(), locker.DefaultTTL)))},
		contender{"redsync", fresh(ofRedsync(autoPipeline(b, s.Addr())))},
		contender{"redislock", fresh(ofRedislock(autoPipeline(b, s.Addr())))},
	)
}

// BenchmarkRedlockCallers256 is 256 goroutines with names of their own on five
// Redis.
func BenchmarkRedlockCallers256(b *testing.B) {
	servers := make([]*lab.Redis, 5)
	var plain, piped []redis.UniversalClient
	for i := range servers {
		servers[i] = lab.StartRedis(b)
		plain, piped = append(plain, newRedis(b, servers[i].Addr())),
			append(piped, autoPipeline(b, servers[i].Addr()))
	}
	compete(b, 256, redisTime(b, servers...),
		contender{"redsync", ofRedsync(plain...)},
		contender{"locker", ofLocker(newRedlock(b, locker.DefaultTTL, servers...))},
		contender{"redsync-autopipeline", ofRedsync(piped...)},
	)
}

// fresh takes a new name each time: nodes that the last release has not come to yet are no contenders.
func fresh(take taker) taker {
	var n atomic.Int64
	return func(ctx context.Context, name string) (func(context.Context) error, error) {
		return take(ctx, name+"-"+strconv.FormatInt(n.Add(1), 10))
	}
}

// BenchmarkRedlockAlone is one caller on five Redis, beside the raw commands on all
// of them at the same time.
func BenchmarkRedlockAlone(b *testing.B) {
	servers := make([]*lab.Redis, 5)
	raw := make([]taker, len(servers))
	for i := range servers {
		servers[i] = lab.StartRedis(b)
		raw[i] = rawRedis(b, newRedis(b, servers[i].Addr()))
	}
	compete(b, 1, redisTime(b, servers...),
		contender{"raw", fresh(func(ctx context.Context, name string) (func(context.Context) error, error) {
			return func(context.Context) error { return nil }, contest.Spread(len(raw), len(raw), func(n int) error {
				return raw[n].pair(ctx, name)
			})
		})},
		contender{"locker", fresh(ofLocker(newRedlock(b, locker.DefaultTTL, servers...)))},
	)
}

// BenchmarkRedisHeld10000 is what 10,000 leases cost that are held and renewed
// every three seconds. Its time is the client's for one renewal.
func BenchmarkRedisHeld10000(b *testing.B) {
	const leases, ttl, cycle = 10_000, 9 * time.Second, 3 * time.Second
	five := make([]*lab.Redis, 5)
	for i := range five {
		five[i] = lab.StartRedis(b)
	}
	for _, c := range []struct {
		name    string
		servers []*lab.Redis
		open    func(b *testing.B) taker
	}{
		{"single/rueidislock", five[:1], func(b *testing.B) taker {
			return ofRueidislock(newRueidislock(b, five[0].Addr(), ttl))
		}},
		{"single/locker", five[:1], func(b *testing.B) taker {
			return ofLocker(newSingle(b, five[0].Addr(), ttl))
		}},
		{"redlock/locker", five, func(b *testing.B) taker { return ofLocker(newRedlock(b, ttl, five...)) }},
	} {
		b.Run(c.name, func(b *testing.B) {
			hold := c.open(b)
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
				u := startUsage(redisTime(b, c.servers...))
				time.Sleep(2 * cycle) // what is measured is a rate
				u.report(b, 2*leases, "renewal")
				// A renewal's client time stands for its speed here.
				b.ReportMetric(float64((processTime()-u.client).Nanoseconds())/(2*leases), "ns/op")
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

// turn is one time in which a caller had the lock, in nanoseconds of the wall clock, which is that of
// all processes.
type turn struct{ asked, from, to, over int64 }

// contend has 4 processes with 16 callers each want the same name, hold it for so long, and report what
// came of it, by caller.
func contend(b *testing.B, held time.Duration,
	report func(b *testing.B, window time.Duration, all [][]turn), whose ...string) {
	const processes, callers, window = 4, 16, 2 * time.Second
	for range turns {
		for _, who := range whose {
			b.Run(who, func(b *testing.B) {
				s := lab.StartRedis(b) // of its own: a child that is killed leaves its last lock
				programs := contest.Start(b, processes, "contend", who, s.Addr(), window.String(), held.String())
				for b.Loop() {
					for _, c := range programs {
						c.Send(b, "go")
					}
					var all [][]turn
					for _, c := range programs {
						for range callers {
							var his []turn
							if err := json.Unmarshal([]byte(c.Expect(b, "had", time.Minute)), &his); err != nil {
								b.Fatal(err)
							}
							all = append(all, his)
						}
					}
					report(b, window, all)
				}
			})
		}
	}
}

// UnmarshalJSON and MarshalJSON have a turn in a line that is not too long.
func (t *turn) UnmarshalJSON(text []byte) error {
	return json.Unmarshal(text, &[]any{&t.asked, &t.from, &t.to, &t.over})
}

func (t turn) MarshalJSON() ([]byte, error) {
	return json.Marshal([]int64{t.asked, t.from, t.to, t.over})
}

// contendInChild is one process of contend.
func contendInChild(p *lab.Parent) {
	window, _ := time.ParseDuration(p.Args[2])
	held, _ := time.ParseDuration(p.Args[3])
	var take taker
	switch b := new(testing.B); p.Args[0] {
	case "rueidislock":
		take = ofRueidislock(newRueidislock(b, p.Args[1], locker.DefaultTTL))
	case "redislock":
		take = ofRedislock(newRedis(b, p.Args[1]))
	default:
		take = ofLocker(newSingle(b, p.Args[1], locker.DefaultTTL, p.Args[0]))
	}
	for p.Say("ready"); ; {
		p.Hear()
		// Where a wake-up was lost, a caller of rueidislock waits on.
		ctx, cancel := context.WithTimeout(context.Background(), window)
		var all sync.WaitGroup
		for range 16 {
			all.Go(func() {
				his := []turn{}
				for ctx.Err() == nil {
					t := turn{asked: time.Now().UnixNano()}
					release, err := take(ctx, "one")
					if err != nil {
						break // the time is over
					}
					t.from = time.Now().UnixNano()
					time.Sleep(held)
					t.to = time.Now().UnixNano()
					_ = release(context.Background())
					t.over = time.Now().UnixNano()
					his = append(his, t)
				}
				text, _ := json.Marshal(his)
				p.Say("had %s", text)
			})
		}
		all.Wait()
		cancel()
	}
}

// BenchmarkRedisOneName is what they get together, how evenly, and how long one waits.
func BenchmarkRedisOneName(b *testing.B) {
	contend(b, 0, func(b *testing.B, window time.Duration, all [][]turn) {
		sum, squares, worst := 0.0, 0.0, int64(0)
		for _, his := range all {
			n := float64(len(his))
			sum, squares = sum+n, squares+n*n
			var waits []int64
			for _, t := range his {
				waits = append(waits, t.over-t.asked)
			}
			if slices.Sort(waits); len(waits) > 0 {
				worst = max(worst, waits[len(waits)*99/100])
			}
		}
		b.ReportMetric(float64(window.Nanoseconds())/sum, "ns/op")
		b.ReportMetric(sum*sum/squares/float64(len(all)), "jain")
		b.ReportMetric(float64(worst)/1e6, "worst-p99-ms")
	}, "redislock", "locker", noPass, noTurns)
}

// BenchmarkRedisOneNameHeld is the same with 1 ms of work under the lock: how long it is nobody's
// between one holder and the next, as a median (ns/op).
func BenchmarkRedisOneNameHeld(b *testing.B) {
	contend(b, time.Millisecond, func(b *testing.B, window time.Duration, all [][]turn) {
		holds := slices.Concat(all...)
		slices.SortFunc(holds, func(a, b turn) int { return cmp.Compare(a.from, b.from) })
		var gaps []int64
		for i := range len(holds) - 1 {
			gaps = append(gaps, holds[i+1].from-holds[i].to)
		}
		slices.Sort(gaps)
		b.ReportMetric(float64(gaps[len(gaps)/2]), "ns/op")
		b.ReportMetric(float64(gaps[len(gaps)*99/100])/1e6, "p99-ms")
		b.ReportMetric(float64(len(holds))/window.Seconds(), "holds/s")
	}, "rueidislock", "locker", noPass, noTurns)
}
