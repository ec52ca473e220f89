package bridge_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/backends"
)

// The cost of a lock and an unlock on both, beside the cost on either alone, in turns.
func BenchmarkPair(b *testing.B) {
	for _, pair := range [][2]string{{"redis", "etcd"}, {"redis", "redlock"}, {"redlock", "zookeeper"},
		{"file", "redis"}, {"etcd", "postgres"}} {
		b.Run(pair[0]+" "+pair[1], func(b *testing.B) {
			first, second := services[pair[0]](b).ownURL(), services[pair[1]](b).ownURL()
			var clients []*locker.Client
			for _, u := range []string{first, second, first + " " + second} {
				c, err := backends.Openers.Open(b.Context(), u, &locker.Options{TTL: 20 * time.Second})
				require.NoError(b, err)
				defer c.Close()
				clients = append(clients, c)
			}
			var all [3][]time.Duration
			for b.Loop() {
				for i, c := range clients {
					began := time.Now()
					l, err := c.Lock(b.Context(), "job")
					if err == nil {
						err = l.Unlock(b.Context())
					}
					all[i] = append(all[i], time.Since(began))
					require.NoError(b, err)
				}
			}
			var took [3]time.Duration // the medians: other work on the machine is in few of them
			for i, unit := range []string{"µs/first", "µs/second", "µs/both"} {
				slices.Sort(all[i])
				took[i] = all[i][len(all[i])/2]
				b.ReportMetric(float64(took[i].Microseconds()), unit)
			}
			b.ReportMetric(float64(took[2])/float64(took[0]+took[1]), "of-the-sum")
			b.ReportMetric(0, "ns/op")
		})
	}
}
