// Command moving holds a lock of redislock and one of locker, as programs do in the middle of a move.
package main

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/bsm/redislock"
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
	before := ofRedislock(rdb)
	err = both(ctx, before, client, "order/42", func(context.Context, *locker.Lease) error {
		_, _, err := before(ctx, "order/42")
		fmt.Println("beside it, the old lock is", err)
		_, err = client.TryLock(ctx, "order/42")
		fmt.Println("and the new one", err)
		return nil
	})
	fmt.Println("both were held:", err == nil)
	_, _ = client.Close(), rdb.Close()
}
