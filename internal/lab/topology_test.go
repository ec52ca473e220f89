package lab_test

import (
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/internal/lab"
)

func TestProveSentinelFailsOverWhenThePrimaryIsKilled(t *testing.T) {
	lab.NeedProve(t)
	s := lab.StartSentinel(t, 2, lab.WithPassword("secret"))
	old := s.Primary(t)
	assert.Same(t, s.Servers[0], old)
	c := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: s.Name, SentinelAddrs: s.Addrs(),
		Password: "secret"})
	t.Cleanup(func() { _ = c.Close() })
	require.NoError(t, c.Set(t.Context(), "k", "v", 0).Err())
	assert.Equal(t, "v", old.MustDo(t, "GET", "k"))
	setReplicated(t, old, "k", "v", 2)

	next := s.KillPrimary(t)
	assert.NotSame(t, old, next)
	assert.False(t, old.Running())
	assert.Equal(t, "v", next.MustDo(t, "GET", "k"))
	assert.Equal(t, "master", next.Info(t, "replication")["role"])
	assert.Same(t, next, s.Primary(t))
	eventually(t, "clients find the new primary",
		func() bool { return c.Set(t.Context(), "k", "w", 0).Err() == nil })
	assert.Equal(t, "w", next.MustDo(t, "GET", "k"))
}

func TestProveSentinelFailsOverWhenThePrimaryIsPaused(t *testing.T) {
	lab.NeedProve(t)
	s := lab.StartSentinel(t, 1, lab.WithTLS(lab.NewCerts(t)))
	old := s.Primary(t)
	old.Pause()
	next := s.Primary(t, old)
	assert.Same(t, s.Servers[1], next)
}

func TestProveClusterServesEverySlot(t *testing.T) {
	lab.NeedProve(t)
	for name, opts := range map[string][]lab.Option{
		"plain":    nil,
		"password": {lab.WithPassword("secret")},
		"TLS":      {lab.WithTLS(lab.NewCerts(t))},
	} {
		t.Run(name, func(t *testing.T) {
			c := lab.StartCluster(t, opts...)
			o := &redis.ClusterOptions{Addrs: c.Addrs()}
			if certs := c.Nodes[0].Certs(); certs != nil {
				o.TLSConfig = certs.ClientConfig()
			}
			if name == "password" {
				o.Password = "secret"
			}
			client := redis.NewClusterClient(o)
			t.Cleanup(func() { _ = client.Close() })
			seen := map[*lab.Redis]bool{}
			for _, key := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
				require.NoError(t, client.Set(t.Context(), key, "v", 0).Err())
				node := c.NodeOf(t, key)
				assert.Equal(t, "v", node.MustDo(t, "GET", key), "a node answers for its own slots only")
				seen[node] = true
			}
			assert.Len(t, seen, 3)
		})
	}
}

func TestProveClusterNodeComesBack(t *testing.T) {
	lab.NeedProve(t)
	c := lab.StartCluster(t, lab.WithAppendOnly())
	node := c.NodeOf(t, "k")
	node.MustDo(t, "SET", "k", "v")
	node.Kill()
	node.Restart(t)
	c.WaitUntilComplete(t)
	assert.Equal(t, "v", node.MustDo(t, "GET", "k"))
}
