package fencingproof_test

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"

	"github.com/golockers/locker/fencing"
	"github.com/golockers/locker/fencing/redisguard"
)

// redisTarget is a key of a Redis.
type redisTarget struct {
	client   *redis.Client
	guard    *redisguard.Guard
	key      string
	resource []string // none: without a guard
}

func openRedis(addr, key string, resource []string) (target, error) {
	r := &redisTarget{client: redis.NewClient(&redis.Options{Addr: addr}), key: key, resource: resource}
	var err error
	r.guard, err = redisguard.New(r.client, nil)
	return r, err
}

func (r *redisTarget) write(ctx context.Context, value string) error {
	token, err := fencing.FromContext(ctx)
	if err != nil {
		return err
	}
	if len(r.resource) == 0 {
		return r.client.Set(ctx, r.key, value, 0).Err()
	}
	return r.guard.Set(ctx, r.resource[0], token, r.key, value, 0)
}

func (r *redisTarget) raise(ctx context.Context) error {
	token, err := fencing.FromContext(ctx)
	if err != nil {
		return err
	}
	return r.guard.Raise(ctx, r.resource[0], token)
}

func (r *redisTarget) read(ctx context.Context) (string, error) {
	value, err := r.client.Get(ctx, r.key).Result()
	if errors.Is(err, redis.Nil) {
		err = nil
	}
	return value, err
}

func (r *redisTarget) close() { _ = r.client.Close() }
