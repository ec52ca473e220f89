package bridge_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/backends"
)

// The cost of a lock and an unlock on both, beside the cost on either alone.
func BenchmarkPair(b *testing.B) {
	for _, pair := range pairs {
		first, second := services[pair[0]](b).ownURL(), services[pair[1]](b).ownURL()
		for what, url := range map[string]string{pair[0]: first, pair[1]: second, "both": first + " " + second} {
			b.Run(pair[0]+" "+pair[1]+"/"+what, func(b *testing.B) {
				c, err := backends.Openers.Open(b.Context(), url, &locker.Options{TTL: 20 * time.Second})
				require.NoError(b, err)
				defer c.Close()
				for b.Loop() {
					l, err := c.Lock(b.Context(), "job")
					if err == nil {
						err = l.Unlock(b.Context())
					}
					require.NoError(b, err)
				}
			})
		}
	}
}
