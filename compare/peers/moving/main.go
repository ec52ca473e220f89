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

// both calls f under the old lock, with its old key, and inside it under locker's.
func both(ctx context.Context, before *redislock.Client, after locker.Locker, name string,
	f func(context.Context) error) error {
	until := time.Now().Add(ttl)
	lock, err := before.Obtain(ctx, "lock:"+name, ttl, nil)
	if err != nil {
		return err
	}
	defer func() { _ = lock.Release(context.WithoutCancel(ctx)) }()
	ctx, cancel := context.WithDeadline(ctx, until) // the loss of the old lock is not reported
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
	client, err := locker.New(backend, nil)
	if err != nil {
		log.Fatal(err)
	}
	before := redislock.New(rdb)
	err = both(ctx, before, client, "order/42", func(context.Context) error {
		_, err := before.Obtain(ctx, "lock:order/42", ttl, nil)
		fmt.Println("beside it, the old lock is", err)
		_, err = client.TryLock(ctx, "order/42")
		fmt.Println("and the new one", err)
		return nil
	})
	fmt.Println("both were held:", err == nil)
	_, _ = client.Close(), rdb.Close()
}
