// Package soak_test uses one service for as long as one likes, and looks whether anything piles up: `make
// soak`.
package soak_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/metrics"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/backends"
	"github.com/golockers/locker/internal/lab"
)

const (
	ttl      = 3 * time.Second
	longs    = 500  // leases that are held for minutes, and renewed
	names    = 2000 // that are locked and unlocked again and again
	wanted   = 20   // names that many want
	callers  = 60   // who want them, each third of whom gives up soon
	samples  = 120
	warmUp   = 4     // a fourth of the time
	ofMemory = 1e6   // bytes by which memory may seem to grow
	ofOthers = 0.005 // of goroutines, of keys
)

// TestSoak runs for LOCKER_SOAK on the service LOCKER_SOAK_URL: a URL, or redis, etcd, postgres or
// zookeeper for one that the lab starts; without it, a Redis.
func TestSoak(t *testing.T) {
	text := os.Getenv("LOCKER_SOAK")
	if text == "" {
		t.Skip("it takes as long as LOCKER_SOAK says, such as 30m: `make soak`")
	}
	lasts, err := time.ParseDuration(text)
	require.NoError(t, err)
	url, stored := service(t, os.Getenv("LOCKER_SOAK_URL"))
	c, err := backends.Openers.Open(t.Context(), url, &locker.Options{TTL: ttl, Prefix: "soak/"})
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), lasts)
	defer cancel()
	var w work
	w.start(ctx, c)

	var memory, goroutines, keys series
	began := time.Now()
	tick := time.NewTicker(lasts / samples)
	defer tick.Stop()
	for n := 1; ctx.Err() == nil; n++ {
		select {
		case <-ctx.Done():
			continue
		case <-tick.C:
		}
		if time.Since(began) < lasts/warmUp {
			continue
		}
		at := time.Since(began).Seconds()
		memory.add(at, heapLive())
		goroutines.add(at, float64(runtime.NumGoroutine()))
		keys.add(at, float64(stored()))
		if n%(samples/12) == 0 {
			t.Logf("%5.0fs: %.1f MB, %.0f goroutines, %.0f keys; %d locks, %d gave up, %d lost",
				at, memory.last()/1e6, goroutines.last(), keys.last(), w.locks.Load(), w.left.Load(), w.lost.Load())
		}
	}
	cancel()
	w.all.Wait()
	require.NoError(t, c.Close())
	assert.Empty(t, memory.grows("bytes of memory", ofMemory))
	assert.Empty(t, goroutines.grows("goroutines", 1+ofOthers*goroutines.mean()))
	assert.Empty(t, keys.grows("keys in the service", 1+ofOthers*keys.mean()))
	assert.Zero(t, w.lost.Load(), "leases were lost though nothing was wrong")
	if err := w.failed.Load(); err != nil {
		t.Error(*err)
	}
}

// service returns the URL of a service, and how much is stored in it.
func service(t *testing.T, which string) (url string, stored func() int) {
	number := func(text string) int {
		n, err := strconv.Atoi(text)
		require.NoError(t, err)
		return n
	}
	switch which {
	case "", "redis":
		r := lab.StartRedis(t)
		return "redis://" + r.Addr(), func() int { return int(r.MustDo(t, "DBSIZE").(int64)) }
	case "etcd":
		c := lab.StartEtcd(t, 1,
			lab.WithConfig("auto-compaction-mode", "revision"),
			lab.WithConfig("auto-compaction-retention", "1000"))
		return "etcd://" + c.Nodes[0].Addr(), func() int { return c.Nodes[0].Keys(t) }
	case "postgres":
		p := lab.StartPostgres(t)
		rows := func() int { return number(p.Query(t, "SELECT count(*) FROM locker_locks")) }
		return p.URL(p.Addr(), "sslmode=disable"), rows
	case "zookeeper":
		z := lab.StartZooKeeper(t)
		return "zookeeper://" + z.Addr() + "/?ttl=3s", func() int { return z.Nodes(t) }
	}
	c, err := backends.Openers.Open(t.Context(), which, nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return which, func() (held int) {
		for _, err := range c.List(t.Context(), "soak/") {
			if errors.Is(err, errors.ErrUnsupported) {
				return 0
			}
			require.NoError(t, err)
			held++
		}
		return held
	}
}

// work is what callers do.
type work struct {
	all               sync.WaitGroup
	locks, left, lost atomic.Int64
	failed            atomic.Pointer[error]
}

func (w *work) start(ctx context.Context, c *locker.Client) {
	for i := range longs {
		w.loop(ctx, func() { w.hold(ctx, c, fmt.Sprintf("long-%d", i), 20*time.Second+rand.N(40*time.Second)) })
	}
	for i := range callers {
		w.loop(ctx, func() { w.hold(ctx, c, fmt.Sprintf("brief-%d", rand.N(names)), 0) })
		w.loop(ctx, func() {
			name := fmt.Sprintf("wanted-%d", rand.N(wanted))
			if i%3 > 0 {
				w.hold(ctx, c, name, rand.N(20*time.Millisecond))
				return
			}
			soon, cancel := context.WithTimeout(ctx, rand.N(50*time.Millisecond))
			defer cancel()
			w.hold(soon, c, name, 0)
		})
	}
}

// loop does something again and again.
func (w *work) loop(ctx context.Context, do func()) {
	w.all.Go(func() {
		for ctx.Err() == nil {
			do()
			pause(ctx, 100*time.Millisecond+rand.N(100*time.Millisecond))
		}
	})
}

func (w *work) hold(ctx context.Context, c *locker.Client, name string, keep time.Duration) {
	l, err := c.Lock(ctx, name)
	if err != nil {
		if ctx.Err() == nil {
			w.failed.Store(&err)
		}
		w.left.Add(1)
		return
	}
	w.locks.Add(1)
	if keep > 0 {
		pause(ctx, keep)
	}
	release, cancel := context.WithTimeout(context.Background(), ttl)
	defer cancel()
	if err := l.Unlock(release); err != nil {
		w.lost.Add(1)
		w.failed.Store(&err)
	}
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

func heapLive() float64 {
	runtime.GC()
	s := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(s)
	return float64(s[0].Value.Uint64())
}

// series is something that was measured again and again.
type series struct{ at, is []float64 }

func (s *series) add(at, is float64) { s.at, s.is = append(s.at, at), append(s.is, is) }
func (s *series) last() float64      { return s.is[len(s.is)-1] }
func (s *series) mean() float64      { return mean(s.is) }

func mean(all []float64) (sum float64) {
	for _, x := range all {
		sum += x / float64(len(all))
	}
	return sum
}

// grows says what is wrong if, beyond what chance explains, it has grown by more than some amount; "" if not.
func (s *series) grows(what string, by float64) string {
	n := float64(len(s.at))
	if n < 10 {
		return fmt.Sprintf("%s were measured only %.0f times", what, n)
	}
	at, is := mean(s.at), mean(s.is)
	var xx, xy float64
	for i := range s.at {
		xx += (s.at[i] - at) * (s.at[i] - at)
		xy += (s.at[i] - at) * (s.is[i] - is)
	}
	slope := xy / xx
	var off float64 // from the line
	for i := range s.at {
		d := s.is[i] - is - slope*(s.at[i]-at)
		off += d * d
	}
	sure := slope - 3*math.Sqrt(off/(n-2)/xx)
	span := s.at[len(s.at)-1] - s.at[0]
	if sure*span <= by {
		return ""
	}
	return fmt.Sprintf("%s grow by %.4g a minute, for %s: %s", what, slope*60,
		time.Duration(span*float64(time.Second)).Round(time.Second), s.tenth())
}

// tenth is each tenth of the figures.
func (s *series) tenth() string {
	var b strings.Builder
	for i := 0; i < len(s.is); i += max(1, len(s.is)/10) {
		fmt.Fprintf(&b, " %.4g", s.is[i])
	}
	return strings.TrimSpace(b.String())
}

// What grows is told from what only moves.
func TestGrows(t *testing.T) {
	noise := rand.New(rand.NewPCG(1, 2))
	for _, test := range []struct {
		name  string
		is    func(at float64) float64
		grows bool
	}{
		{"level", func(float64) float64 { return 1000 }, false},
		{"moves", func(float64) float64 { return 1000 + 200*noise.Float64() }, false},
		{"shrinks", func(at float64) float64 { return 1000 - at }, false},
		{"grows", func(at float64) float64 { return 1000 + at }, true},
		{"grows and moves", func(at float64) float64 { return 1000 + at + 50*noise.Float64() }, true},
		{"grows by little", func(at float64) float64 { return 1000 + at/1000 }, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			var s series
			for at := range 100 {
				s.add(float64(at), test.is(float64(at)))
			}
			assert.Equal(t, test.grows, s.grows("things", 10) != "", s.grows("things", 10))
		})
	}
}
