package locktest

import (
	"context"
	"crypto/rand"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/golockers/locker"
	"github.com/golockers/locker/internal/stall"
)

// SilenceCostsNothing tries, with Silence, whether a silence costs no lease, and a lock can be had soon after it. A
// machine that stalls loses leases, too: it is tried ten times, and what fails while this process was run late is no
// failure.
func SilenceCostsNothing(t testing.TB, silence time.Duration, try func() (lost int, wait time.Duration)) {
	t.Helper()
	failed := 0
	for range 10 {
		longest := stall.Longest()
		lost, wait := try()
		late := longest()
		t.Logf("granted %v after the network was back, %d leases lost; this process was %v late", wait, lost, late)
		if lost == 0 && wait < 300*time.Millisecond {
			return
		}
		if late < silence/4 {
			failed++
		}
	}
	if failed < 3 { // of ten, a few may be the server's that stalled by itself
		t.Skip("the machine stalls all the time: nothing can be said of it")
	}
	t.Fatalf("not once in ten times, and in %d of them this process was run in time", failed)
}

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
