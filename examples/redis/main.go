// Command redis guards a key of Redis. Here the lock is in the same Redis; it could be anywhere.
package main

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/golockers/locker/examples/internal/story"
	"github.com/golockers/locker/fencing"
	"github.com/golockers/locker/fencing/redisguard"
)

func main() {
	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	guard, err := redisguard.New(rdb, nil)
	story.Must(err)
	set := redisguard.NewScript("return redis.call('SET', KEYS[1], ARGV[1])")
	story.Tell(context.Background(), "redis://localhost:6379", story.Order{
		Raise: guard.Raise,
		Set: func(ctx context.Context, token fencing.Token, state string) error {
			return guard.Run(ctx, story.Lock, token, set, []string{"{order/42}:state"}, state).Err()
		},
		Get: func(ctx context.Context) (string, error) { return rdb.Get(ctx, "{order/42}:state").Result() },
	})
}
