package conformance

import (
	"sync"
	"time"
)

// stalls measures how long this program was not run at all. A lease that was
// lost meanwhile was lost with good reason, and proves nothing.
type stalls struct {
	end     chan struct{}
	ended   sync.WaitGroup
	longest time.Duration
}

// stallTick is how often it looks.
const stallTick = 10 * time.Millisecond

func watchStalls() *stalls {
	s := &stalls{end: make(chan struct{})}
	s.ended.Go(func() {
		ticker := time.NewTicker(stallTick)
		defer ticker.Stop()
		last := time.Now()
		for {
			select {
			case <-ticker.C:
			case <-s.end:
				return
			}
			now := time.Now()
			s.longest = max(s.longest, now.Sub(last)-stallTick)
			last = now
		}
	})
	return s
}

// stop returns the longest stall.
func (s *stalls) stop() time.Duration {
	close(s.end)
	s.ended.Wait()
	return s.longest
}
