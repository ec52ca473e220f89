package zookeeper_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/internal/contest"
	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/zookeeper"
)

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

// rawContender creates a node and deletes it, with so many writes in between.
// Nobody waits here, and nothing is safe.
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
		for range writes {
			if err == nil {
				_, _, err = c.Children(dir)
			}
			if err == nil {
				_, err = c.Set("/raw", []byte("bench"), -1)
			}
		}
		if err == nil {
			err = c.Delete(path, -1)
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

// rival is a contender in a benchmark's process. The server's program is fast
// only when it has done a thing some hundred times.
func rival(b *testing.B, kind, server string) contender {
	b.Helper()
	c, done, err := contenders[kind]([]string{server})
	require.NoError(b, err)
	b.Cleanup(done)
	require.NoError(b, contest.Spread(1000, 1, func(int) error { return c(b.Context(), "warm") }))
	return c
}

// BenchmarkFree is the lock that nobody else wants: acquire and release, beside
// the two raw requests.
func BenchmarkFree(b *testing.B) {
	z := lab.StartZooKeeper(b)
	raw, ours, theirs := rival(b, "raw", z.Addr()), rival(b, "locker", z.Addr()), rival(b, "zk.Lock", z.Addr())
	own := func(c contender) func(operations, goroutines int) error {
		return contest.On(func(n int) error { return c(b.Context(), "free-"+strconv.Itoa(n)) })
	}
	for _, n := range []int{1, 8, 64, 256} {
		contest.Run(b, fmt.Sprintf("goroutines=%d", n),
			contest.Competitor{Name: "raw", Goroutines: n, Op: own(raw)},
			contest.Competitor{Name: "locker", Goroutines: n, Op: own(ours)},
			contest.Competitor{Name: "zk.Lock", Goroutines: n, Op: own(theirs)})
	}
}

// BenchmarkContended is one name that all goroutines of a process want. Raw is
// one caller alone, who makes one write more: what handing a lock on may cost.
func BenchmarkContended(b *testing.B) {
	z := lab.StartZooKeeper(b)
	raw, ours, theirs := rival(b, "raw+write", z.Addr()), rival(b, "locker", z.Addr()), rival(b, "zk.Lock",
		z.Addr())
	one := func(c contender) func(operations, goroutines int) error {
		return contest.On(func(int) error { return c(b.Context(), "one") })
	}
	for _, n := range []int{8, 64} {
		contest.Run(b, fmt.Sprintf("goroutines=%d", n),
			contest.Competitor{Name: "raw", Goroutines: 1, Op: one(raw)},
			contest.Competitor{Name: "locker", Goroutines: n, Op: one(ours)},
			contest.Competitor{Name: "zk.Lock", Goroutines: n, Op: one(theirs)})
	}
}

// BenchmarkProcesses is one name that all goroutines of four programs want.
func BenchmarkProcesses(b *testing.B) {
	z := lab.StartZooKeeper(b)
	const processes = 4
	raw := rival(b, "raw+write", z.Addr())
	programs := map[string][]*lab.Child{}
	for _, kind := range []string{"locker", "zk.Lock"} {
		programs[kind] = contest.Start(b, processes, "bench", z.Addr(), kind)
	}
	for _, n := range []int{8, 64} {
		contest.Run(b, fmt.Sprintf("processes=%d,goroutines=%d", processes, n),
			contest.Competitor{Name: "raw", Goroutines: 1, Op: contest.On(func(int) error {
				return raw(b.Context(),
					"one")
			})},
			contest.Competitor{Name: "locker", Goroutines: n, Op: contest.Told(b, programs["locker"])},
			contest.Competitor{Name: "zk.Lock", Goroutines: n, Op: contest.Told(b, programs["zk.Lock"])})
	}
}

// benchRole is one of the programs. Its arguments: servers, kind. What it
// hears: how many operations, on how many goroutines.
func benchRole(p *lab.Parent) {
	c, _, err := contenders[p.Args[1]](strings.Split(p.Args[0], ","))
	if err == nil {
		err = contest.Spread(200, 1, func(int) error { return c(context.Background(), "warm") })
	}
	if err == nil {
		err = contest.Serve(p, func(int) error { return c(context.Background(), "one") })
	}
	panic(err)
}
