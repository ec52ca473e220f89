package compare

import (
	"fmt"
	"time"

	"github.com/golockers/locker/compare/internal/history"
	"github.com/golockers/locker/internal/stall"
)

const (
	beat    = 10 * time.Millisecond
	stalled = 50 * time.Millisecond // how late a beat may be before it is told
	look    = 100 * time.Millisecond
	starved = look / 10 // how long a server may wait for a processor between two looks before it is told
)

// watchStalls tells when this process was not run for a while: what was late then is nobody's fault.
func watchStalls(tell func(history.Event)) (stop func()) {
	return stall.Watch(beat, func(late time.Duration) {
		if late > stalled {
			tell(history.Event{Kind: history.Stall, Value: int64(late)})
		}
	})
}

// watchServers tells how long the lab's servers had to wait for a processor: holders that run know
// nothing of it.
func watchServers[S interface {
	Pid() int
	Waits() map[int]time.Duration
}](tell func(history.Event), servers []S) (stop func()) {
	before := make([]map[int]time.Duration, len(servers))
	return stall.Every(look, func() {
		for i, s := range servers {
			now := s.Waits()
			var longest time.Duration // of one thread: the others may be in nobody's way
			for thread, waited := range now {
				if before[i] != nil {
					longest = max(longest, waited-before[i][thread])
				}
			}
			if before[i] = now; longest > starved {
				tell(history.Event{Kind: history.Starved, Process: fmt.Sprint(s.Pid()), Value: int64(longest)})
			}
		}
	})
}
