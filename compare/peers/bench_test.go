package main

import (
	"context"
	"runtime"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/golockers/locker"
	"github.com/golockers/locker/internal/contest"
	"github.com/golockers/locker/internal/lab"
)

// Each contender is
// one library, or the raw commands of its driver, and `make bench` compares them.
// A service has a file of its own: redis_bench_test.go.

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

func ofLocker(c *locker.Client) taker {
	return func(ctx context.Context, name string) (func(context.Context) error, error) {
		l, err := c.Lock(ctx, name)
		if err != nil {
			return nil, err
		}
		return l.Unlock, nil
	}
}

// contender is one library in a comparison.
type contender struct {
	name string
	take taker
}

// turns is how often contenders take turns in one run: what the machine gives
// changes from second to second.
const turns = 3

// compete has the contenders take turns with so many goroutines, each with a name
// of its own. servers returns the processor time that the servers have used.
func compete(b *testing.B, goroutines int, servers func() time.Duration,
	contenders ...contender) {
	for range turns {
		for _, c := range contenders {
			b.Run(c.name, func(b *testing.B) {
				ctx, cancel := context.WithTimeout(b.Context(), time.Minute) // a contender that hangs fails
				defer cancel()
				pairs := func(n int) {
					err := contest.Spread(n, goroutines, func(i int) error {
						return c.take.pair(ctx, "job-"+strconv.Itoa(i))
					})
					if err != nil {
						b.Fatal(err)
					}
				}
				pairs(max(200, 10*goroutines)) // connections, scripts
				b.ResetTimer()
				u := startUsage(servers)
				pairs(b.N)
				u.report(b, b.N, "pair")
			})
		}
	}
}

// usage is what this process and the servers have used so far: unlike time, that
// is much the same on a machine that has other work.
type usage struct {
	servers        func() time.Duration
	client, server time.Duration
	allocs         uint64
}

func startUsage(servers func() time.Duration) usage {
	u := usage{servers: servers, client: processTime()}
	if servers != nil {
		u.server = servers()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	u.allocs = m.Mallocs
	return u
}

// report reports what n of something have cost each.
func (u usage) report(b *testing.B, n int, each string) {
	now := startUsage(u.servers)
	b.ReportMetric(float64((now.client-u.client).Nanoseconds())/1000/float64(n), "client-µs/"+each)
	b.ReportMetric(float64(now.allocs-u.allocs)/float64(n), "allocs/"+each)
	if u.servers != nil {
		b.ReportMetric(float64((now.server-u.server).Nanoseconds())/1000/float64(n), "server-µs/"+each)
	}
}

// processTime is the processor time that this process has used.
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
