// Command redis guards a key of a Redis. The lock is in the same Redis here; it could
// be anywhere.
package main

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/golockers/locker/examples/internal/story"
	"github.com/golockers/locker/fencing"
	"github.com/golockers/locker/fencing/redisguard"
)

type order struct {
	rdb   *redis.Client
	guard *redisguard.Guard
}

var set = redisguard.NewScript("return redis.call('SET', KEYS[1], ARGV[1])")

func (o order) Raise(ctx context.Context, token fencing.Token) error {
	return o.guard.Raise(ctx, "order/42", token)
}

func (o order) Set(ctx context.Context, token fencing.Token, state string) error {
	return o.guard.Run(ctx, "order/42", token, set, []string{"{order/42}:state"}, state).Err()
}

func (o order) Get(ctx context.Context) (string, error) {
	return o.rdb.Get(ctx, "{order/42}:state").Result()
}

func main() {
	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	guard, err := redisguard.New(rdb, nil)
	story.Must(err)
	story.Tell(context.Background(), "redis://localhost:6379", order{rdb, guard})
}
