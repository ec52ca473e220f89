package backends_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/golockers/locker"
	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/etcd"
	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/internal/locktest"
	"github.com/golockers/locker/postgres"
	"github.com/golockers/locker/redlock"
	"github.com/golockers/locker/single"
	"github.com/golockers/locker/zookeeper"
)

// What is made with New asks its service for nothing before the first Lock: a program can start beside a
// service that is down, and its Lock waits for it as for any outage.
func TestALockWaitsForAServiceThatIsNotThereYet(t *testing.T) {
	const ttl = 3 * time.Second // more than a busy machine lets pass between a Lock and its Unlock
	for name, start := range map[string]func(t *testing.T) (s service, b driver.Backend, err error){
		"single": func(t *testing.T) (service, driver.Backend, error) {
			s := lab.StartRedis(t)
			s.Kill()
			b, err := single.New(redisClient(t, s), nil)
			return s, b, err
		},
		"redlock": func(t *testing.T) (service, driver.Backend, error) {
			s := lab.StartRedis(t, lab.WithAppendOnly())
			s.Kill()
			b, err := redlock.New([]*redis.Client{redisClient(t, s)}, &redlock.Options{MaxTTL: ttl})
			return s, b, err
		},
		"postgres": func(t *testing.T) (service, driver.Backend, error) {
			s := lab.StartPostgres(t)
			s.Kill()
			pool, err := pgxpool.New(t.Context(), s.URL(s.Addr()))
			require.NoError(t, err)
			t.Cleanup(pool.Close)
			b, err := postgres.New(pool, nil)
			return s, b, err
		},
		"etcd": func(t *testing.T) (service, driver.Backend, error) {
			s := lab.StartEtcd(t, 1).Nodes[0]
			s.Kill()
			client, err := clientv3.New(clientv3.Config{Endpoints: []string{s.URL()}})
			require.NoError(t, err)
			t.Cleanup(func() { _ = client.Close() })
			b, err := etcd.New(client, nil)
			return s, b, err
		},
		"zookeeper": func(t *testing.T) (service, driver.Backend, error) {
			s := lab.StartZooKeeper(t)
			s.Kill()
			b, err := zookeeper.New([]string{s.Addr()}, nil)
			return s, b, err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, b, err := start(t)
			require.NoError(t, err)
			t.Cleanup(func() { _ = b.Close() })
			c := locktest.Must(locker.New(b, &locker.Options{TTL: ttl, OutageTimeout: time.Minute}))
			t.Cleanup(func() { _ = c.Close() })
			_, err = c.TryLock(t.Context(), "a")
			require.ErrorIs(t, err, locker.ErrUnavailable)
			ctx := locktest.Within(t, time.Minute)
			granted := make(chan error, 1)
			go func() {
				l, err := c.Lock(ctx, "a")
				if err == nil {
					err = l.Unlock(ctx)
				}
				granted <- err
			}()
			select {
			case err := <-granted:
				t.Fatal("it did not wait: ", err)
			case <-time.After(300 * time.Millisecond):
			}
			s.Restart(t)
			assert.NoError(t, <-granted)
		})
	}
}

type service interface{ Restart(t lab.TB) }

func redisClient(t *testing.T, s *lab.Redis) *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: s.Addr()})
	t.Cleanup(func() { _ = c.Close() })
	return c
}
