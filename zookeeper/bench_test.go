package zookeeper_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/internal/testserver"
	"github.com/golockers/locker/zookeeper"
)

// The names and units are those that internal/benchtable reads.

// turns is how many results there are of each contender in one run.
const turns = 5

// handingOn is the target for contended locks: 1.10 × the three requests, and a write: 1.07 × the four.
const handingOn = 1.07

// contender takes a lock and gives it back.
type contender func(ctx context.Context, name string) error

// contenders connect to servers. What they open ends with done.
var contenders = map[string]func(servers []string) (c contender, done func(), err error){
	"locker":    lockerContender,
	"zk.Lock":   recipeContender,
	"raw":       func(servers []string) (contender, func(), error) { return rawContender(servers, 0) },
	"raw+write": func(servers []string) (contender, func(), error) { return rawContender(servers, 1) },
}

func lockerContender(servers []string) (contender, func(), error) {
	b, err := zookeeper.New(servers, &zookeeper.Options{SessionTimeout: 30 * time.Second})
	if err != nil {
		return nil, nil, err
	}
	c := locker.New(b, nil)
	return func(ctx context.Context, name string) error {
		l, err := c.Lock(ctx, name)
		if err != nil {
			return err
		}
		return l.Unlock(ctx)
	}, func() { _ = c.Close(); _ = b.Close() }, nil
}

func recipeContender(servers []string) (contender, func(), error) {
	c, done, err := connect(servers)
	return func(_ context.Context, name string) error {
		l := zk.NewLock(c, "/zklock/"+name, zk.WorldACL(zk.PermAll))
		if err := l.Lock(); err != nil {
			return err
		}
		return l.Unlock()
	}, done, err
}

// rawContender makes the three requests that do the least of it, and so many
// writes more. Nobody waits here, and nothing is safe.
func rawContender(servers []string, writes int) (contender, func(), error) {
	c, done, err := connect(servers)
	if err != nil {
		return nil, nil, err
	}
	acl := zk.WorldACL(zk.PermAll)
	_, _ = c.Create("/raw", nil, 0, acl)
	var made sync.Map
	return func(_ context.Context, name string) error {
		dir := "/raw/" + name
		if _, known := made.LoadOrStore(name, true); !known {
			_, _ = c.Create(dir, nil, 0, acl)
		}
		path, err := c.Create(dir+"/n-", []byte("bench"), zk.FlagEphemeral|zk.FlagSequence, acl)
		if err == nil {
			_, _, err = c.Children(dir)
		}
		if err == nil {
			err = c.Delete(path, -1)
		}
		for range writes {
			if err == nil {
				_, err = c.Set("/raw", []byte("bench"), -1)
			}
		}
		return err
	}, done, nil
}

func connect(servers []string) (*zk.Conn, func(), error) {
	c, events, err := zk.Connect(servers, 30*time.Second, zk.WithLogger(quiet{}))
	if err != nil {
		return nil, nil, err
	}
	return c, func() {
		c.Close()
		for range events {
		}
	}, nil
}

// spread runs so many operations on so many goroutines.
func spread(operations, goroutines int, op func(n int) error) error {
	next := make(chan struct{}, goroutines)
	errs := make(chan error, 1)
	var all sync.WaitGroup
	for n := range goroutines {
		all.Go(func() {
			for range next {
				if err := op(n); err != nil {
					select {
					case errs <- err:
					default:
					}
				}
			}
		})
	}
	for range operations {
		next <- struct{}{}
	}
	close(next)
	all.Wait()
	close(errs)
	return <-errs
}

// rival is a contender in a benchmark's process. The server's program is fast
// only when it has done a thing some hundred times.
func rival(b *testing.B, kind, server string) contender {
	b.Helper()
	c, done, err := contenders[kind]([]string{server})
	require.NoError(b, err)
	b.Cleanup(done)
	require.NoError(b, spread(1000, 1, func(int) error { return c(b.Context(), "warm") }))
	return c
}

// competitor is one of those that take turns in a topic.
type competitor struct {
	name       string
	goroutines int
	op         func(operations, goroutines int) error
	metrics    []any // values and their units
}

// compete lets the competitors of a topic take turns, a block of operations
// each, and reports the median of each: what else the machine does meets them all.
func compete(b *testing.B, topic string, block time.Duration, all ...competitor) {
	b.Helper()
	const blocks = 11
	operations := make([]int, len(all))
	timed := func(i int) float64 {
		began := time.Now()
		require.NoError(b, all[i].op(operations[i], all[i].goroutines))
		return float64(time.Since(began)) / float64(operations[i])
	}
	for i, c := range all { // as many operations as a block has time for
		operations[i] = 4 * c.goroutines
		operations[i] = max(c.goroutines, int(float64(block)/timed(i)))
	}
	for range turns {
		times := make([][]float64, len(all))
		for range blocks {
			for i := range all {
				times[i] = append(times[i], timed(i))
			}
		}
		for i, c := range all {
			slices.Sort(times[i])
			b.Run(topic+"/"+c.name, func(b *testing.B) {
				b.ReportMetric(times[i][blocks/2], "ns/op")
				for m := 0; m+1 < len(c.metrics); m += 2 {
					b.ReportMetric(c.metrics[m].(float64), c.metrics[m+1].(string))
				}
			})
		}
	}
}

// on spreads operations over goroutines.
func on(op func(n int) error) func(operations, goroutines int) error {
	return func(operations, goroutines int) error { return spread(operations, goroutines, op) }
}

// told has programs do operations, on so many goroutines in all.
func told(b *testing.B, programs []*testserver.Child) func(operations, goroutines int) error {
	return func(operations, goroutines int) error {
		n := len(programs)
		for _, c := range programs {
			c.Send(b, fmt.Sprint((operations+n-1)/n, " ", goroutines/n))
		}
		for _, c := range programs {
			c.Expect(b, "done", 5*time.Minute)
		}
		return nil
	}
}

// BenchmarkFree is the lock that nobody else wants: acquire and release, beside
// the three raw requests.
func BenchmarkFree(b *testing.B) {
	z := testserver.StartZooKeeper(b)
	raw, ours, theirs := rival(b, "raw", z.Addr()), rival(b, "locker", z.Addr()), rival(b, "zk.Lock", z.Addr())
	own := func(c contender) func(operations, goroutines int) error {
		return on(func(n int) error { return c(b.Context(), "free-"+strconv.Itoa(n)) })
	}
	for _, n := range []int{1, 8, 64} {
		compete(b, fmt.Sprintf("goroutines=%d", n), 5*time.Millisecond,
			competitor{"raw", n, own(raw), nil},
			competitor{"locker", n, own(ours), []any{1.10, "target-time"}},
			competitor{"zk.Lock", n, own(theirs), nil})
	}
}

// BenchmarkContended is one name that all goroutines of a process want. Raw is
// one caller alone, who makes one write more: what handing a lock on may cost.
func BenchmarkContended(b *testing.B) {
	z := testserver.StartZooKeeper(b)
	raw, ours, theirs := rival(b, "raw+write", z.Addr()), rival(b, "locker", z.Addr()), rival(b, "zk.Lock", z.Addr())
	one := func(c contender) func(operations, goroutines int) error {
		return on(func(int) error { return c(b.Context(), "one") })
	}
	for _, n := range []int{8, 64} {
		compete(b, fmt.Sprintf("goroutines=%d", n), 5*time.Millisecond,
			competitor{"raw", 1, one(raw), nil},
			competitor{"locker", n, one(ours), []any{handingOn, "target-time"}},
			competitor{"zk.Lock", n, one(theirs), nil})
	}
}

// BenchmarkProcesses is one name that all goroutines of four programs want.
func BenchmarkProcesses(b *testing.B) {
	z := testserver.StartZooKeeper(b)
	const processes = 4
	raw := rival(b, "raw+write", z.Addr())
	programs := map[string][]*testserver.Child{}
	for _, kind := range []string{"locker", "zk.Lock"} {
		for range processes {
			c := testserver.StartChild(b, "bench", z.Addr(), kind)
			c.Expect(b, "ready", time.Minute)
			programs[kind] = append(programs[kind], c)
		}
	}
	for _, n := range []int{8, 64} {
		compete(b, fmt.Sprintf("processes=%d,goroutines=%d", processes, n), 60*time.Millisecond, // they begin with an empty queue
			competitor{"raw", 1, on(func(int) error { return raw(b.Context(), "one") }), nil},
			competitor{"locker", n, told(b, programs["locker"]), []any{handingOn, "target-time"}},
			competitor{"zk.Lock", n, told(b, programs["zk.Lock"]), nil})
	}
}

// benchRole is one of the programs. Its arguments: servers, kind. What it
// hears: how many operations, on how many goroutines.
func benchRole(p *testserver.Parent) {
	c, _, err := contenders[p.Args[1]](strings.Split(p.Args[0], ","))
	if err == nil {
		err = spread(200, 1, func(int) error { return c(context.Background(), "warm") })
	}
	for said := "ready"; err == nil; said = "done" {
		p.Say("%s", said)
		var operations, goroutines int
		if _, err = fmt.Sscan(p.Hear(), &operations, &goroutines); err == nil {
			err = spread(operations, goroutines, func(int) error { return c(context.Background(), "one") })
		}
	}
	panic(err)
}
