package conformance

import (
	"sync"
	"time"
)

// stallTick is how often watchStalls looks.
const stallTick = 10 * time.Millisecond

// watchStalls measures how long this program was not run at all, at most, until
// stop is called. A lease that was lost meanwhile was lost with good reason, and
// proves nothing.
func watchStalls() (stop func() (longest time.Duration)) {
	end := make(chan struct{})
	var ended sync.WaitGroup
	var longest time.Duration
	ended.Go(func() {
		ticker := time.NewTicker(stallTick)
		defer ticker.Stop()
		last := time.Now()
		for {
			select {
			case <-ticker.C:
			case <-end:
				return
			}
			now := time.Now()
			longest = max(longest, now.Sub(last)-stallTick)
			last = now
		}
	})
	return func() time.Duration {
		close(end)
		ended.Wait()
		return longest
	}
}
