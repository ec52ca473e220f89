// Command peers is `locker compare` with locks of other libraries beside ours: each is wrapped as a backend
// that does and believes what the library itself does and says, no more. Nothing is declared for them, so
// what breaks is information.
//
//	go run . --for 30m
package main

import (
	"context"
	"os"
	"slices"
	"strings"

	"github.com/golockers/locker"
	"github.com/golockers/locker/compare"
	"github.com/golockers/locker/etcd"
	"github.com/golockers/locker/redlock"
	"github.com/golockers/locker/single"
	"github.com/golockers/locker/zookeeper"
)

var openers = locker.Openers{
	"redis": single.Open, "redlock": redlock.Open, "etcd": etcd.Open, "zookeeper": zookeeper.Open,
	"redislock": openRedislock, "rueidislock": openRueidislock, "redsync": openRedsync,
	"etcd-mutex": openEtcdMutex, "zk.lock": openZKLock,
}

// subjects are compared with one another where the command line names none.
var subjects = []string{
	"redis", "redislock=redis", "rueidislock=redis", "redlock", "redsync=redlock", "etcd", "etcd-mutex=etcd",
	"zookeeper", "zk.lock=zookeeper",
}

func main() {
	if !slices.ContainsFunc(os.Args[1:], func(arg string) bool { return openers[scheme(arg)] != nil }) {
		os.Args = append(os.Args, subjects...)
	}
	compare.Main(openers)
}

// scheme is the part of an argument that names a backend.
func scheme(arg string) string {
	if i := strings.IndexAny(arg, "=:"); i >= 0 {
		return arg[:i]
	}
	return arg
}

// undeclared is what is said of a library: its name, how far apart its callers can be, and what keeps time
// for its holders.
func undeclared(name, timer string) locker.Guarantees {
	return locker.Guarantees{Backend: name, Scope: locker.ScopeNetwork, RestsOn: timer}
}

// refused is the answer that another holds the lock. None of these libraries says for how long.
func refused() (locker.Grant, error) { return locker.Grant{}, locker.ErrHeld }

// alone calls f, which does not look at a context, and goes on without it when ctx ends; late gets its result
// then.
func alone[T any](ctx context.Context, f func() (T, error), late func(T)) (T, error) {
	type answer struct {
		value T
		err   error
	}
	answers := make(chan answer, 1)
	go func() {
		v, err := f()
		answers <- answer{v, err}
	}()
	select {
	case a := <-answers:
		return a.value, a.err
	case <-ctx.Done():
		go func() {
			if a := <-answers; a.err == nil {
				late(a.value)
			}
		}()
		var zero T
		return zero, ctx.Err()
	}
}
