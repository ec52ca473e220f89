package redlock_test

import (
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/redlock"
)

// What a lock costs
// beside the raw commands and redsync is in compare/peers.

const benchNodes = 5

// benchSetup is five servers and a Client of this library on them. The guard is
// off, for the servers are new.
func benchSetup(b *testing.B) (s *nodes, locks *locker.Client) {
	s = start(b, benchNodes)
	var clients []*redis.Client
	for _, r := range s.servers {
		c := redis.NewClient(&redis.Options{Addr: r.Addr()})
		b.Cleanup(func() { _ = c.Close() })
		clients = append(clients, c)
	}
	backend, err := redlock.New(clients, &redlock.Options{NoRestartGuard: true})
	require.NoError(b, err)
	locks = locker.New(backend, nil)
	b.Cleanup(func() {
		_ = locks.Close()
		_ = backend.Close()
	})
	return s, locks
}

// BenchmarkRedlockHung is the 99th percentile of an acquire with nodes hung,
// beside that with none hung, which stands for raw here.
func BenchmarkRedlockHung(b *testing.B) {
	for hung := 1; hung <= 2; hung++ {
		b.Run(fmt.Sprintf("nodes=%d", hung), func(b *testing.B) {
			s, locks := benchSetup(b)
			run := func(name string) {
				b.Run(name, func(b *testing.B) {
					acquire := func(name string) time.Duration {
						began := time.Now()
						l, err := locks.Lock(b.Context(), name)
						took := time.Since(began)
						require.NoError(b, err)
						require.NoError(b, l.Unlock(b.Context()))
						return took
					}
					for i := range 200 {
						acquire("warm" + strconv.Itoa(i))
					}
					var took []time.Duration
					for b.Loop() {
						took = append(took, acquire(strconv.Itoa(len(took))))
					}
					slices.Sort(took)
					b.ReportMetric(float64(took[len(took)*99/100]), "ns/op")
				})
			}
			for range 3 {
				run("raw")
				for i := range hung {
					s.servers[i].Pause()
				}
				run("locker")
				for i := range hung {
					s.servers[i].Resume()
				}
				within(b, 30*time.Second, "they answer again", func() bool {
					l, err := locks.Lock(b.Context(), "again")
					if err == nil {
						_ = l.Unlock(b.Context())
					}
					return s.holders(b, "again") == 0
				})
			}
		})
	}
}
