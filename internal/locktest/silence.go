package locktest

import (
	"context"
	"crypto/rand"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/golockers/locker"
)

// Silence holds a hundred locks of c, whose TTL is given, while all its connections are silent for so long, from
// drop on, and new ones work after mend. It returns how many leases that costs, and how long after it the first
// lock was granted.
func Silence(
	t testing.TB, c *locker.Client, ttl, silence time.Duration, drop, mend func(),
) (lost int, wait time.Duration) {
	t.Helper()
	var leases []*locker.Lease
	for range 100 {
		leases = append(leases, Lock(t, c, rand.Text()))
	}
	time.Sleep(ttl / 6) // renewals come at any moment of the silence
	drop()
	granted := make(chan time.Time, 1)
	go func() {
		time.Sleep(silence / 2)
		l, err := c.Lock(context.Background(), rand.Text())
		assert.NoError(t, err)
		granted <- time.Now()
		if err == nil {
			_ = l.Unlock(context.Background())
		}
	}()
	time.Sleep(silence)
	mend()
	back := time.Now()
	wait = (<-granted).Sub(back)
	time.Sleep(ttl)
	for _, l := range leases {
		if l.Err() != nil {
			lost++
		}
	}
	return lost, wait
}
