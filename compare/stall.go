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

// watchStalls journals when this process was not run for a while: what was late then is nobody's fault.
// note may be nil; it gets each stall that was journaled.
func watchStalls(j *history.Journal, service, process string, note func(d time.Duration)) (stop func()) {
	return stall.Watch(beat, func(late time.Duration) {
		if late > stalled {
			_, _ = j.Write(history.Event{Kind: history.Stall, Service: service, Process: process, Value: int64(late)})
			if note != nil {
				note(late)
			}
		}
	})
}

// watchServers journals how long the lab's servers had to wait for a processor: holders that run know
// nothing of it.
func watchServers[S interface {
	Pid() int
	Waits() map[int]time.Duration
}](j *history.Journal, service string, servers []S) (stop func()) {
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
				_, _ = j.Write(history.Event{Kind: history.Starved, Service: service,
					Process: fmt.Sprint(s.Pid()), Value: int64(longest)})
			}
		}
	})
}
