package backends_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/backends"
	"github.com/golockers/locker/internal/contest"
	"github.com/golockers/locker/internal/lab"
)

// BenchmarkCurve is how the pairs of Lock and Unlock of a second change with the
// number of callers, each with a name of its own: nobody is refused, and 16 times
// the callers of the peak get most of it (R21).
func BenchmarkCurve(b *testing.B) {
	for _, service := range services() {
		b.Run(service.name, func(b *testing.B) {
			client, err := backends.Open(b.Context(), service.start(b), nil)
			require.NoError(b, err)
			defer func() { require.NoError(b, client.Close()) }()
			pair := func(n int) error {
				lease, err := client.Lock(b.Context(), "job-"+strconv.Itoa(n))
				if err != nil {
					return err
				}
				return lease.Unlock(b.Context())
			}
			for callers := 64; callers <= 16384; callers *= 4 {
				b.Run(fmt.Sprintf("callers=%d/locker", callers), func(b *testing.B) {
					require.NoError(b, contest.Spread(callers, callers, pair)) // a queue, or a file, for each
					b.ResetTimer()
					pairs := max(b.N, 2*callers)
					require.NoError(b, contest.Spread(pairs, callers, pair))
					b.ReportMetric(float64(pairs)/b.Elapsed().Seconds(), "pairs/s")
					b.ReportMetric(0, "ns/op") // of the pairs that there were to be, and there are more
				})
			}
		})
	}
}

type measured struct {
	name  string
	start func(b *testing.B) (url string)
}

func services() []measured {
	return []measured{
		{"memory", func(*testing.B) string { return "memory://" }},
		{"file", func(b *testing.B) string { return "file://" + b.TempDir() }},
		{"single", func(b *testing.B) string { return "redis://" + lab.StartRedis(b).Addr() }},
		{"redlock", func(b *testing.B) string {
			var addrs []string
			for range 5 {
				addrs = append(addrs, lab.StartRedis(b).Addr())
			}
			return "redlock://" + strings.Join(addrs, ",") + "?restart_guard=off"
		}},
		{"postgres", func(b *testing.B) string {
			s := lab.StartPostgres(b)
			return s.URL(s.Addr(), "")
		}},
		{"etcd", func(b *testing.B) string {
			return "etcd://" + lab.StartEtcd(b, 1, lab.WithConfig("unsafe-no-fsync", "false")).Addrs()[0]
		}},
		{"zookeeper", func(b *testing.B) string { return "zookeeper://" + lab.StartZooKeeper(b).Addr() }},
	}
}
