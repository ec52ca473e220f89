package redisguard_test

import (
	"context"
	"errors"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/golockers/locker/fencing"
	"github.com/golockers/locker/internal/guardtest"
	"github.com/golockers/locker/internal/lab"
)

func TestSuite(t *testing.T) {
	server := lab.StartRedis(t)
	guardtest.Run(t, func(t *testing.T) guardtest.Store {
		s := storeOn(t, newClient(t, &redis.Options{Addr: server.Addr()}))
		s.State = func() any { return everything(t, server) }
		return s
	})
	guardtest.Faults(t, func(t *testing.T) guardtest.Proxied {
		server := lab.StartRedis(t)
		p := lab.StartProxy(t, server.Addr())
		through := newClient(t, &redis.Options{Addr: p.Addr(), ContextTimeoutEnabled: true})
		direct := newClient(t, &redis.Options{Addr: server.Addr()})
		s := storeOn(t, through)
		s.Read = storeOn(t, direct).Read
		return guardtest.Proxied{Store: s, Proxy: p, Later: storeOn(t, direct).Write, Deadlines: true}
	})
}

func TestProveSuiteOnACluster(t *testing.T) {
	lab.NeedProve(t)
	cluster := lab.StartCluster(t)
	guardtest.Run(t, func(t *testing.T) guardtest.Store {
		client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs()})
		t.Cleanup(func() { _ = client.Close() })
		return storeOn(t, client)
	})
}

func storeOn(t *testing.T, client redis.UniversalClient) guardtest.Store {
	g := newGuard(t, client, nil)
	return guardtest.Store{
		Write: func(ctx context.Context, r string, token fencing.Token, value string) error {
			return set(ctx, g, r, token, r, value)
		},
		Raise: g.Raise,
		Read: func(ctx context.Context, r string) (string, error) {
			value, err := client.Get(ctx, r).Result()
			if errors.Is(err, redis.Nil) {
				err = nil
			}
			return value, err
		},
		Mark:    g.Mark,
		Forget:  g.Forget,
		AnyName: true,
	}
}
