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
	"github.com/golockers/locker/internal/testserver"
	"github.com/golockers/locker/zookeeper"
)

// contender takes a lock and gives it back, as one of those that are compared does.
type contender func(ctx context.Context) error

// contenders connect to servers, and return how to make a contender for name.
var contenders = map[string]func(servers []string) (make func(name string) contender, done func(), err error){
	"locker": func(servers []string) (func(string) contender, func(), error) {
		b, err := zookeeper.New(servers, &zookeeper.Options{SessionTimeout: 30 * time.Second})
		if err != nil {
			return nil, nil, err
		}
		c := locker.New(b, nil)
		return func(name string) contender {
			return func(ctx context.Context) error {
				l, err := c.Lock(ctx, name)
				if err != nil {
					return err
				}
				return l.Unlock(ctx)
			}
		}, func() { _ = c.Close(); _ = b.Close() }, nil
	},
	"zk.Lock": func(servers []string) (func(string) contender, func(), error) {
		c, events, err := zk.Connect(servers, 30*time.Second, zk.WithLogger(quiet{}))
		if err != nil {
			return nil, nil, err
		}
		return func(name string) contender {
			return func(context.Context) error {
				l := zk.NewLock(c, "/zklock/"+name, zk.WorldACL(zk.PermAll))
				if err := l.Lock(); err != nil {
					return err
				}
				return l.Unlock()
			}
		}, func() { c.Close(); drain(events) }, nil
	},
	// What there is to it at the least: nobody waits here, and nothing is safe.
	"raw": func(servers []string) (func(string) contender, func(), error) {
		c, events, err := zk.Connect(servers, 30*time.Second, zk.WithLogger(quiet{}))
		if err != nil {
			return nil, nil, err
		}
		acl := zk.WorldACL(zk.PermAll)
		_, _ = c.Create("/raw", nil, 0, acl)
		return func(name string) contender {
			_, _ = c.Create("/raw/"+name, nil, 0, acl)
			return func(context.Context) error {
				path, err := c.Create("/raw/"+name+"/n-", nil, zk.FlagEphemeral|zk.FlagSequence, acl)
				if err != nil {
					return err
				}
				if _, _, err := c.Children("/raw/" + name); err != nil {
					return err
				}
				return c.Delete(path, -1)
			}
		}, func() { c.Close(); drain(events) }, nil
	},
}

func drain(events <-chan zk.Event) {
	for range events {
	}
}

// BenchmarkUncontended is one caller on a name of its own.
func BenchmarkUncontended(b *testing.B) {
	z := testserver.StartZooKeeper(b)
	for _, kind := range []string{"raw", "locker", "zk.Lock"} {
		b.Run(kind, func(b *testing.B) { contend(b, kind, z.Addr(), 1) })
	}
}

// BenchmarkContended is many callers of one client and one name.
func BenchmarkContended(b *testing.B) {
	z := testserver.StartZooKeeper(b)
	for _, n := range []int{8, 64} {
		for _, kind := range []string{"locker", "zk.Lock"} {
			b.Run(fmt.Sprintf("%d/%s", n, kind), func(b *testing.B) { contend(b, kind, z.Addr(), n) })
		}
	}
}

func contend(b *testing.B, kind, server string, n int) {
	makeOne, done, err := contenders[kind]([]string{server})
	require.NoError(b, err)
	defer done()
	one := makeOne("bench")
	require.NoError(b, one(b.Context()))
	b.ResetTimer()
	run(b, one, b.N, n)
	b.StopTimer()
}

// run lets n goroutines take the lock so many times in all.
func run(t testing.TB, one contender, times, n int) {
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			for range (times + n - 1 - i) / n {
				if err := one(context.Background()); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
}

// BenchmarkProcesses is four programs, with two callers of one name each.
func BenchmarkProcesses(b *testing.B) {
	z := testserver.StartZooKeeper(b)
	for _, kind := range []string{"locker", "zk.Lock"} {
		b.Run(kind, func(b *testing.B) {
			var children []*testserver.Child
			for range 4 {
				c := testserver.StartChild(b, "bench", z.Addr(), kind)
				c.Expect(b, "ready", soon)
				children = append(children, c)
			}
			b.ResetTimer()
			for _, c := range children {
				c.Send(b, strconv.Itoa((b.N+3)/4))
			}
			for _, c := range children {
				c.Expect(b, "done", 5*time.Minute)
			}
			b.StopTimer()
		})
	}
}

// benchRole is one of the programs: servers, kind.
func benchRole(p *testserver.Parent) {
	makeOne, done, err := contenders[p.Args[1]](strings.Split(p.Args[0], ","))
	if err != nil {
		panic(err)
	}
	one := makeOne("bench")
	if err := one(context.Background()); err != nil {
		panic(err)
	}
	p.Say("ready")
	times, err := strconv.Atoi(p.Hear())
	if err != nil {
		panic(err)
	}
	var all sync.WaitGroup
	for range 2 {
		all.Go(func() {
			for range (times + 1) / 2 {
				if err := one(context.Background()); err != nil {
					panic(err)
				}
			}
		})
	}
	all.Wait()
	p.Say("done")
	done()
}
