package redisguard_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/internal/lab"
)

// Over TLS the driver does not see that an idle connection was closed. A
// request that may be sent twice is. Run, which may not, has one before it that may.
func TestIdleConnectionsThatWereClosedCostNothing(t *testing.T) {
	certs := lab.NewCerts(t)
	server := lab.StartRedis(t, lab.WithTLS(certs))
	client := newClient(t, &redis.Options{Addr: server.Addr(), TLSConfig: certs.ClientConfig(), MaxRetries: -1})
	g := newGuard(t, client, nil)
	ctx := t.Context()
	require.NoError(t, set(ctx, g, "k", 1, "k", "v"))
	for what, ask := range map[string]func() error{
		"Raise": func() error { return g.Raise(ctx, "k", 1) },
		"Mark":  func() error { _, err := g.Mark(ctx, "k"); return err },
		"Run": func() error {
			time.Sleep(1100 * time.Millisecond) // it was idle
			return g.Run(ctx, "r", 1, push, []string{"{r}:list"}, 1).Err()
		},
		"Forget": func() error { return g.Forget(ctx, "gone") },
	} {
		var all []*redis.Conn
		for range 6 {
			c := client.Conn()
			for c.Ping(ctx).Err() != nil {
				require.NoError(t, c.Close())
				c = client.Conn()
			}
			all = append(all, c)
		}
		for _, c := range all {
			require.NoError(t, c.Close())
		}
		server.HangUp(t)
		require.NoError(t, ask(), what)
	}
	require.Equal(t, []any{"1"}, server.MustDo(t, "LRANGE", "{r}:list", 0, -1))
}
