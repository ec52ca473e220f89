// Command moving moves a lock from redislock, and from redsync, to locker while its holders work.
package main

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"

	"github.com/golockers/locker"
	"github.com/golockers/locker/single"
)

const ttl = 30 * time.Second // of the old lock

// An old lock is taken as before the move: with the same key. until is when it is over.
type old func(ctx context.Context, name string) (until time.Time, release func(), err error)

func ofRedislock(rdb *redis.Client) old {
	locks := redislock.New(rdb)
	return func(ctx context.Context, name string) (time.Time, func(), error) {
		until := time.Now().Add(ttl)
		lock, err := locks.Obtain(ctx, "lock:"+name, ttl, nil)
		if err != nil {
			return until, nil, err
		}
		return until, func() { _ = lock.Release(context.WithoutCancel(ctx)) }, nil
	}
}

func ofRedsync(rdb *redis.Client) old {
	locks := redsync.New(goredis.NewPool(rdb))
	return func(ctx context.Context, name string) (time.Time, func(), error) {
		lock := locks.NewMutex("lock:"+name, redsync.WithExpiry(ttl), redsync.WithTries(1))
		if err := lock.LockContext(ctx); err != nil {
			return time.Time{}, nil, err
		}
		return lock.Until(), func() { _, _ = lock.UnlockContext(context.WithoutCancel(ctx)) }, nil
	}
}

// both calls f under the old lock, and under that of locker inside of it.
func both(ctx context.Context, before old, after locker.Locker, name string,
	f func(context.Context, *locker.Lease) error) error {
	until, release, err := before(ctx, name)
	if err != nil {
		return err
	}
	defer release()
	ctx, cancel := context.WithDeadline(ctx, until) // nobody tells when the old lock is lost
	defer cancel()
	return locker.TryDo(ctx, after, name, f) // Do would wait
}

func main() {
	ctx := context.Background()
	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	backend, err := single.New(rdb, nil)
	if err != nil {
		log.Fatal(err)
	}
	client := locker.New(backend, nil)
	for _, library := range []string{"redislock", "redsync"} {
		before := map[string]old{"redislock": ofRedislock(rdb), "redsync": ofRedsync(rdb)}[library]
		// The three versions of a program: each calls f if it holds the lock.
		versions := map[string]func(f func()){
			"before": func(f func()) {
				if _, release, err := before(ctx, "order/42"); err == nil {
					defer release()
					f()
				}
			},
			"meanwhile": func(f func()) {
				_ = both(ctx, before, client, "order/42", func(context.Context, *locker.Lease) error { f(); return nil })
			},
			"after": func(f func()) {
				_ = locker.TryDo(ctx, client, "order/42", func(context.Context, *locker.Lease) error { f(); return nil })
			},
		}
		for _, pair := range [][2]string{{"before", "meanwhile"}, {"meanwhile", "before"}, {"meanwhile", "after"},
			{"after", "meanwhile"}, {"before", "after"}} {
			versions[pair[0]](func() {
				together := false
				versions[pair[1]](func() { together = true })
				fmt.Printf("%s: %s holds, and so does %s: %v\n", library, pair[0], pair[1], together)
			})
		}
	}
	_, _ = client.Close(), rdb.Close()
}
