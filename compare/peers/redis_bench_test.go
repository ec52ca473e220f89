package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
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

func rawRedis(b *testing.B, client redis.Cmdable) pair {
	const deleteOwn = `if redis.call('GET', KEYS[1]) == ARGV[1] then ` +
		`return redis.call('DEL', KEYS[1]) end return 0`
	sha, err := client.ScriptLoad(b.Context(), deleteOwn).Result()
	if err != nil {
		b.Fatal(err)
	}
	return func(ctx context.Context, name string) error {
		var random [20]byte
		_, _ = rand.Read(random[:])
		key, owner := "raw:"+name, hex.EncodeToString(random[:])
		if ok, err := client.SetNX(ctx, key, owner, locker.DefaultTTL).Result(); err != nil || !ok {
			return fmt.Errorf("SET NX: %v, %w", ok, err)
		}
		return client.EvalSha(ctx, sha, []string{key}, owner).Err()
	}
}

func viaRedislock(client redislock.RedisClient) pair {
	locks := redislock.New(client)
	return func(ctx context.Context, name string) error {
		l, err := locks.Obtain(ctx, "redislock:"+name, locker.DefaultTTL,
			&redislock.Options{RetryStrategy: redislock.LinearBackoff(time.Millisecond)})
		if err != nil {
			return err
		}
		return l.Release(ctx)
	}
}

func viaRedsync(clients ...redis.UniversalClient) pair {
	var pools []redsyncredis.Pool
	for _, c := range clients {
		pools = append(pools, goredis.NewPool(c))
	}
	rs := redsync.New(pools...)
	return func(ctx context.Context, name string) error {
		m := rs.NewMutex("redsync:"+name, redsync.WithExpiry(locker.DefaultTTL))
		if err := m.LockContext(ctx); err != nil {
			return err
		}
		_, err := m.UnlockContext(ctx)
		return err
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

func viaRueidislock(locks rueidislock.Locker) pair {
	return func(ctx context.Context, name string) error {
		_, release, err := locks.WithContext(ctx, name)
		if err != nil {
			return err
		}
		release()
		return nil
	}
}

// What a hand-over costs without a half of passing (see locker.Passer): each caller acquires in a request of
// its own, or the lock is passed on within a client as ever and is then anybody's.
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
		contender{"locker", viaLocker(newSingle(b, s.Addr(), locker.DefaultTTL))},
		contender{"redislock", viaRedislock(newRedis(b, s.Addr()))},
		contender{"redsync", viaRedsync(newRedis(b, s.Addr()))},
		contender{"rueidislock", viaRueidislock(newRueidislock(b, s.Addr(), locker.DefaultTTL))},
	)
}

// BenchmarkRedisCallers256 is 256 goroutines with names of their own on one Redis.
// Raw commands and peers are given go-redis's own pipelining, where they take it.
func BenchmarkRedisCallers256(b *testing.B) {
	s := lab.StartRedis(b)
	compete(b, 256, redisTime(b, s),
		contender{"raw", rawRedis(b, autoPipeline(b, s.Addr()))},
		contender{"locker", viaLocker(newSingle(b, s.Addr(), locker.DefaultTTL))},
		contender{"redsync", viaRedsync(autoPipeline(b, s.Addr()))},
		contender{"redislock", viaRedislock(autoPipeline(b, s.Addr()))},
		contender{"rueidislock", viaRueidislock(newRueidislock(b, s.Addr(), locker.DefaultTTL))},
	)
}

// BenchmarkRedisFresh256 is 256 goroutines on one Redis, each lock with a name that was never used.
func BenchmarkRedisFresh256(b *testing.B) {
	s := lab.StartRedis(b)
	compete(b, 256, redisTime(b, s),
		contender{"raw", fresh(rawRedis(b, autoPipeline(b, s.Addr())))},
		contender{"locker", fresh(viaLocker(newSingle(b, s.Addr(), locker.DefaultTTL)))},
		contender{"redsync", fresh(viaRedsync(autoPipeline(b, s.Addr())))},
		contender{"redislock", fresh(viaRedislock(autoPipeline(b, s.Addr())))},
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
		contender{"redsync", viaRedsync(plain...)},
		contender{"locker", viaLocker(newRedlock(b, locker.DefaultTTL, servers...))},
		contender{"redsync-autopipeline", viaRedsync(piped...)},
	)
}

// fresh takes a new name each time: nodes that the last release has not come to yet
// are no contenders.
func fresh(p pair) pair {
	var n atomic.Int64
	return func(ctx context.Context, name string) error {
		return p(ctx, name+"-"+strconv.FormatInt(n.Add(1), 10))
	}
}

// BenchmarkRedlockAlone is one caller on five Redis, beside the raw commands on all
// of them at the same time.
func BenchmarkRedlockAlone(b *testing.B) {
	servers := make([]*lab.Redis, 5)
	raw := make([]pair, len(servers))
	for i := range servers {
		servers[i] = lab.StartRedis(b)
		raw[i] = rawRedis(b, newRedis(b, servers[i].Addr()))
	}
	compete(b, 1, redisTime(b, servers...),
		contender{"raw", fresh(func(ctx context.Context, name string) error {
			errs := make(chan error, len(raw))
			for _, take := range raw {
				go func() { errs <- take(ctx, name) }()
			}
			var failed error
			for range raw {
				failed = errors.Join(failed, <-errs)
			}
			return failed
		})},
		contender{"locker", fresh(viaLocker(newRedlock(b, locker.DefaultTTL, servers...)))},
	)
}

// BenchmarkRedisHeld10000 is what 10,000 leases cost that are held and renewed
// every three seconds. Its time is the client's for one renewal.
func BenchmarkRedisHeld10000(b *testing.B) {
	const leases, ttl, cycle = 10_000, 9 * time.Second, 3 * time.Second
	viaClient := func(c *locker.Client) func(ctx context.Context, name string) error {
		return func(ctx context.Context, name string) error {
			_, err := c.Lock(ctx, name)
			return err
		}
	}
	five := make([]*lab.Redis, 5)
	for i := range five {
		five[i] = lab.StartRedis(b)
	}
	for _, c := range []struct {
		name, who string
		servers   []*lab.Redis
		open      func(b *testing.B, s *lab.Redis) func(ctx context.Context, name string) error
	}{
		{"single", "rueidislock", five[:1], func(b *testing.B, s *lab.Redis) func(context.Context, string) error {
			locks := newRueidislock(b, s.Addr(), ttl)
			return func(ctx context.Context, name string) error {
				_, _, err := locks.WithContext(ctx, name)
				return err
			}
		}},
		{"single", "locker", five[:1], func(b *testing.B, s *lab.Redis) func(context.Context, string) error {
			return viaClient(newSingle(b, s.Addr(), ttl))
		}},
		{"redlock", "locker", five, func(b *testing.B, _ *lab.Redis) func(context.Context, string) error {
			return viaClient(newRedlock(b, ttl, five...))
		}},
	} {
		b.Run(c.name+"/"+c.who, func(b *testing.B) {
			hold := c.open(b, c.servers[0])
			if err := hold(b.Context(), "warm"); err != nil {
				b.Fatal(err)
			}
			heap, began := heapInUse(), time.Now()
			const goroutines = 64
			var all sync.WaitGroup
			for first := range goroutines {
				all.Go(func() {
					for i := first; i < leases && time.Since(began) < time.Minute; i += goroutines {
						// Evenly over the cycle: leases taken in a burst share their renewals anyway.
						time.Sleep(cycle*time.Duration(i)/leases - time.Since(began))
						if err := hold(b.Context(), "job-"+strconv.Itoa(i)); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			all.Wait()
			if time.Since(began) >= time.Minute {
				b.Skip("the leases cannot be taken in a minute")
			}
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

// BenchmarkRedisWaiting100000 is what 100,000 names that one Client waits for cost
// while nothing happens, and how long one of them takes to be handed over then.
func BenchmarkRedisWaiting100000(b *testing.B) {
	const names = 100_000
	s := lab.StartRedis(b)
	holder, waiting := newSingle(b, s.Addr(), 10*time.Minute), newSingle(b, s.Addr(), 10*time.Minute)
	held := make([]*locker.Lease, names)
	got := make(chan time.Time, names)
	ctx, cancel := context.WithCancel(b.Context())
	var all sync.WaitGroup
	for i := range 256 {
		all.Go(func() {
			for n := i; n < names; n += 256 {
				var err error
				if held[n], err = holder.Lock(ctx, "job-"+strconv.Itoa(n)); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
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

// BenchmarkRedisOneName is 4 processes with 16 callers each that want the same
// name: what they get together, how evenly, and how long one waits.
func BenchmarkRedisOneName(b *testing.B) {
	s := lab.StartRedis(b)
	for range turns {
		for _, who := range []string{"redislock", "locker", noPass, noTurns} {
			b.Run(who, func(b *testing.B) {
				const processes, window = 4, 2 * time.Second
				var children []*lab.Child
				for range processes {
					children = append(children, lab.StartChild(b, "contend", who, s.Addr(), window.String()))
				}
				for _, c := range children {
					c.Expect(b, "ready", 10*time.Second)
				}
				for b.Loop() {
					var counts, waits []float64
					for _, c := range children {
						c.Send(b, "go")
					}
					for _, c := range children {
						for _, field := range strings.Fields(c.Expect(b, "got", time.Minute)) {
							n, wait, _ := strings.Cut(field, ":")
							v, _ := strconv.ParseFloat(n, 64)
							w, _ := strconv.ParseFloat(wait, 64)
							counts, waits = append(counts, v), append(waits, w)
						}
					}
					sum, squares := 0.0, 0.0
					for _, v := range counts {
						sum, squares = sum+v, squares+v*v
					}
					slices.Sort(waits)
					b.ReportMetric(float64(window.Nanoseconds())/sum, "ns/op")
					b.ReportMetric(sum*sum/squares/float64(len(counts)), "jain")
					b.ReportMetric(waits[len(waits)-1]/1e6, "worst-p99-ms")
				}
			})
		}
	}
}

// BenchmarkRedisOneNameHeld is the same with 1 ms of work under the lock: how long it
// is nobody's between one holder and the next, as a median (ns/op).
func BenchmarkRedisOneNameHeld(b *testing.B) {
	for range turns {
		for _, who := range []string{"rueidislock", "locker", noPass, noTurns} {
			b.Run(who, func(b *testing.B) {
				s := lab.StartRedis(b) // of its own: a child that is killed leaves its last lock
				const processes, window = 4, 2 * time.Second
				var children []*lab.Child
				for range processes {
					children = append(children, lab.StartChild(b, "hold", who, s.Addr(), window.String()))
				}
				for _, c := range children {
					c.Expect(b, "ready", 10*time.Second)
				}
				for b.Loop() {
					type hold struct{ from, to int64 }
					var holds []hold
					for _, c := range children {
						c.Send(b, "go")
					}
					for _, c := range children {
						for _, field := range strings.Fields(c.Expect(b, "held", time.Minute)) {
							from, to, _ := strings.Cut(field, ":")
							var h hold
							h.from, _ = strconv.ParseInt(from, 10, 64)
							h.to, _ = strconv.ParseInt(to, 10, 64)
							holds = append(holds, h)
						}
					}
					slices.SortFunc(holds, func(a, b hold) int { return cmp.Compare(a.from, b.from) })
					var gaps []int64
					for i := range len(holds) - 1 {
						gaps = append(gaps, holds[i+1].from-holds[i].to)
					}
					slices.Sort(gaps)
					b.ReportMetric(float64(gaps[len(gaps)/2]), "ns/op")
					b.ReportMetric(float64(gaps[len(gaps)*99/100])/1e6, "p99-ms")
					b.ReportMetric(float64(len(holds))/window.Seconds(), "holds/s")
				}
			})
		}
	}
}

// holdInChild is one process of BenchmarkRedisOneNameHeld. The wall clock is that of
// the others.
func holdInChild(p *lab.Parent) {
	window, err := time.ParseDuration(p.Args[2])
	if err != nil {
		panic(err)
	}
	var lock func(ctx context.Context) (unlock func(), err error)
	switch b := new(testing.B); p.Args[0] {
	case "rueidislock":
		locks := newRueidislock(b, p.Args[1], locker.DefaultTTL)
		lock = func(ctx context.Context) (func(), error) {
			_, release, err := locks.WithContext(ctx, "held")
			return release, err
		}
	default:
		c := newSingle(b, p.Args[1], locker.DefaultTTL, p.Args[0])
		lock = func(ctx context.Context) (func(), error) {
			l, err := c.Lock(ctx, "held")
			return func() { _ = l.Unlock(context.Background()) }, err
		}
	}
	p.Say("ready")
	for {
		p.Hear()
		const goroutines = 16
		said := make([]string, goroutines)
		// Where a wake-up was lost, a caller of rueidislock waits on.
		ctx, cancel := context.WithTimeout(context.Background(), window)
		var all sync.WaitGroup
		for i := range goroutines {
			all.Go(func() {
				var holds []string
				for ctx.Err() == nil {
					unlock, err := lock(ctx)
					if err != nil {
						break // the time is over
					}
					from := time.Now().UnixNano()
					time.Sleep(time.Millisecond)
					holds = append(holds, fmt.Sprintf("%d:%d", from, time.Now().UnixNano()))
					unlock()
				}
				said[i] = strings.Join(holds, " ")
			})
		}
		all.Wait()
		cancel()
		p.Say("held %s", strings.Join(said, " "))
	}
}

// contendInChild is one process of BenchmarkRedisOneName.
func contendInChild(p *lab.Parent) {
	window, err := time.ParseDuration(p.Args[2])
	if err != nil {
		panic(err)
	}
	var take pair
	switch b := new(testing.B); p.Args[0] {
	case "redislock":
		take = viaRedislock(newRedis(b, p.Args[1]))
	default:
		take = viaLocker(newSingle(b, p.Args[1], locker.DefaultTTL, p.Args[0]))
	}
	p.Say("ready")
	for {
		p.Hear()
		const goroutines = 16
		said := make([]string, goroutines)
		end := time.Now().Add(window)
		var all sync.WaitGroup
		for i := range goroutines {
			all.Go(func() {
				var waits []time.Duration
				for began := time.Now(); began.Before(end); began = time.Now() {
					if err := take(context.Background(), "one"); err != nil {
						panic(err)
					}
					waits = append(waits, time.Since(began))
				}
				slices.Sort(waits)
				said[i] = fmt.Sprintf("%d:%d", len(waits), waits[len(waits)*99/100])
			})
		}
		all.Wait()
		p.Say("got %s", strings.Join(said, " "))
	}
}
