package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"runtime"
	"strconv"
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
	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/contest"
	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/redlock"
	"github.com/golockers/locker/single"
)

// peerOps are what take a lock of another library and give it back, on some Redis.
var peerOps = map[string]func(d drivers) contest.Op{
	"redislock": func(d drivers) contest.Op {
		var locks [2]*redislock.Client
		for i, c := range d[0] {
			locks[i] = redislock.New(c)
		}
		return func(ctx context.Context, n int, name string) error {
			l, err := locks[min(n, 1)].Obtain(ctx, "redislock:"+name, locker.DefaultTTL,
				&redislock.Options{RetryStrategy: redislock.LinearBackoff(time.Millisecond)})
			if err != nil {
				return err
			}
			return l.Release(ctx)
		}
	},
	"redsync": func(d drivers) contest.Op {
		var pools [2][]redsyncredis.Pool
		for _, server := range d {
			for i, c := range server {
				pools[i] = append(pools[i], goredis.NewPool(c))
			}
		}
		locks := [2]*redsync.Redsync{redsync.New(pools[0]...), redsync.New(pools[1]...)}
		return func(ctx context.Context, n int, name string) error {
			m := locks[min(n, 1)].NewMutex("redsync:"+name, redsync.WithExpiry(locker.DefaultTTL), redsync.WithTries(1<<20))
			err := m.LockContext(ctx)
			if err == nil {
				_, err = m.UnlockContext(ctx)
			}
			return err
		}
	},
}

// drivers are, for each server, a client that sends each command at once, and one with go-redis's own
// pipelining. A caller alone, who is goroutine 0, has the first, all others share the second.
type drivers [][2]redis.UniversalClient

func connect(servers []string) (d drivers, done func(), err error) {
	var ends []func()
	for _, addr := range servers {
		plain, shared := newRedis(addr), newRedis(addr)
		piped, err := shared.AutoPipeline()
		if err != nil {
			return nil, nil, err
		}
		d = append(d, [2]redis.UniversalClient{plain, piped})
		ends = append(ends, func() { _, _, _ = plain.Close(), piped.Close(), shared.Close() })
	}
	return d, func() {
		for _, end := range ends {
			end()
		}
	}, nil
}

func newRedis(addr string) *redis.Client { return redis.NewClient(&redis.Options{Addr: addr}) }

// driven is a contender on drivers' clients.
func driven(op func(d drivers) contest.Op) contest.Contender {
	return func(servers []string, _ int) (contest.Op, func(), error) {
		d, done, err := connect(servers)
		if err != nil {
			return nil, nil, err
		}
		return op(d), done, nil
	}
}

const deleteOwn = `if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0`

// raw is SET NX and a script that deletes, on all servers at the same time.
func raw(d drivers) contest.Op {
	script := redis.NewScript(deleteOwn)
	return func(ctx context.Context, n int, name string) error {
		key, owner := "raw:"+name, rand.Text()+rand.Text()[:14] // 40 bytes
		one := func(server int) error {
			c := d[server][min(n, 1)]
			if err := c.SetNX(ctx, key, owner, locker.DefaultTTL).Err(); err != nil {
				return err
			}
			return script.Run(ctx, c, []string{key}, owner).Err()
		}
		if len(d) == 1 {
			return one(0)
		}
		return contest.Spread(len(d), len(d), one)
	}
}

func ours(servers []string, _ int) (contest.Op, func(), error) { return oursWith(servers, false) }

func fenced(servers []string, _ int) (contest.Op, func(), error) { return oursWith(servers, true) }

func oursWith(servers []string, fencing bool) (contest.Op, func(), error) {
	var clients []*redis.Client
	for _, addr := range servers {
		clients = append(clients, newRedis(addr))
	}
	var backend driver.Backend
	var err error
	if len(servers) == 1 {
		backend, err = single.New(clients[0], nil)
	} else {
		backend, err = redlock.New(clients, &redlock.Options{NoRestartGuard: true, Fencing: fencing}) // the servers are new
	}
	op, done, err := contest.OfBackend(backend, err)
	return op, func() {
		done()
		for _, c := range clients {
			_ = c.Close()
		}
	}, err
}

func theirs(name string) contest.Contender {
	if name == "rueidislock" {
		return func(servers []string, _ int) (contest.Op, func(), error) {
			locks, err := newRueidislock(servers[0], locker.DefaultTTL)
			return func(ctx context.Context, _ int, name string) (err error) {
				for again := true; again; again = errors.Is(err, context.DeadlineExceeded) {
					wait, cancel := context.WithTimeout(ctx, time.Second) // a caller whose wake-up is lost waits on
					var release context.CancelFunc
					if _, release, err = locks.WithContext(wait, name); err == nil {
						release()
					}
					cancel()
				}
				return err
			}, locks.Close, err
		}
	}
	return driven(peerOps[name])
}

// newRueidislock beats as often as a locker.Client does.
func newRueidislock(addr string, ttl time.Duration) (rueidislock.Locker, error) {
	return rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption: rueidis.ClientOption{InitAddress: []string{addr}}, KeyValidity: ttl,
		ExtendInterval: ttl / 3, KeyMajority: 1, NoLoopTracking: true,
	})
}

func contenders(name string) contest.Contenders {
	return contest.Contenders{Raw: driven(raw), Locker: ours, Theirs: theirs(name), Name: name}
}

// five are the addresses of five Redis.
func five(b *testing.B) (addrs []string) {
	for range 5 {
		addrs = append(addrs, lab.StartRedis(b).Addr())
	}
	return addrs
}

func BenchmarkRedis(b *testing.B) {
	for _, name := range []string{"redislock", "redsync", "rueidislock"} {
		b.Run("beside="+name, func(b *testing.B) { contenders(name).Run(b, []string{lab.StartRedis(b).Addr()}) })
	}
}

func BenchmarkFiveRedis(b *testing.B) {
	servers, c := five(b), contenders("redsync")
	c.Run(b, servers)
	for _, goroutines := range []int{256, 4096} {
		topic := fmt.Sprintf("free,goroutines=%d", goroutines)
		for name, contender := range map[string]contest.Contender{"locker": c.Locker, "redsync": c.Theirs, "fenced": fenced} {
			if goroutines > 256 || name == "fenced" {
				contest.RunFree(b, topic+"/"+name, contender, servers, goroutines)
			}
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

// BenchmarkRedisHeld10000 is what 10,000 leases cost that are held and renewed every three seconds: in
// processor time of the client for one renewal, which stands for its speed here.
func BenchmarkRedisHeld10000(b *testing.B) {
	const leases, ttl, cycle = 10_000, 9 * time.Second, 3 * time.Second
	addr := lab.StartRedis(b).Addr()
	for _, name := range []string{"rueidislock", "locker"} {
		b.Run(name, func(b *testing.B) {
			theirs, err := newRueidislock(addr, ttl)
			if err != nil {
				b.Fatal(err)
			}
			defer theirs.Close()
			rdb := newRedis(addr)
			defer rdb.Close()
			backend, err := single.New(rdb, nil)
			if err != nil {
				b.Fatal(err)
			}
			defer backend.Close()
			ours, err := locker.New(backend, &locker.Options{TTL: ttl})
			if err != nil {
				b.Fatal(err)
			}
			defer ours.Close()
			hold := func(n int) (err error) {
				if name == "locker" {
					_, err = ours.Lock(b.Context(), "job-"+strconv.Itoa(n))
				} else {
					// Nobody else wants the name, and WithContext can wait for a wake-up that does not come.
					_, _, err = theirs.TryWithContext(b.Context(), "job-"+strconv.Itoa(n))
				}
				return err
			}
			if err := hold(leases); err != nil { // connections and scripts
				b.Fatal(err)
			}
			heap, began := heapInUse(), time.Now()
			// Evenly over the cycle: leases taken in a burst share their renewals anyway.
			var next atomic.Int64
			err = contest.Spread(leases, 64, func(int) error {
				n := int(next.Add(1)) - 1
				time.Sleep(cycle*time.Duration(n)/leases - time.Since(began))
				return hold(n)
			})
			if err != nil {
				b.Fatal(err)
			}
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
