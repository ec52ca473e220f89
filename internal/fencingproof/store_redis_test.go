package fencingproof_test

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"

	"github.com/golockers/locker/fencing"
	"github.com/golockers/locker/fencing/redisguard"
)

var setKey = redisguard.NewScript("return redis.call('SET', KEYS[1], ARGV[1])")

// openRedis opens a key of a Redis.
func openRedis(addr, key, resource string) (*target, error) {
	client := redis.NewClient(&redis.Options{Addr: addr})
	guard, err := redisguard.New(client, nil)
	return &target{
		write: func(ctx context.Context, token fencing.Token, value string) error {
			if resource == "" {
				return client.Set(ctx, key, value, 0).Err()
			}
			return guard.Run(ctx, resource, token, setKey, []string{key}, value).Err()
		},
		raise: func(ctx context.Context, token fencing.Token) error { return guard.Raise(ctx, resource, token) },
		read: func(ctx context.Context) (string, error) {
			value, err := client.Get(ctx, key).Result()
			if errors.Is(err, redis.Nil) {
				err = nil
			}
			return value, err
		},
		close: func() { _ = client.Close() },
	}, err
}
