package compare

import (
	"fmt"
	"sync"
	"time"

	"github.com/golockers/locker/compare/internal/history"
)

const (
	beat    = 10 * time.Millisecond
	stalled = 50 * time.Millisecond // how late a beat may be before it is told
	look    = 100 * time.Millisecond
	starved = look / 10 // how long a server may wait for a processor between two looks before it is told
)

// watchStalls journals when this process was not run for a while: what was late then is nobody's fault. note
// may be nil; it gets each stall that was journaled.
func watchStalls(j *history.Journal, service, process string, note func(d time.Duration)) (stop func()) {
	last := time.Now()
	return every(beat, func() {
		now := time.Now()
		if late := now.Sub(last) - beat; late > stalled {
			_, _ = j.Write(history.Event{Kind: history.Stall, Service: service, Process: process, Value: int64(late)})
			if note != nil {
				note(late)
			}
		}
		last = now
	})
}

// watchServers journals how long the lab's servers had to wait for a processor: holders that run know nothing of it.
func watchServers(j *history.Journal, service string, servers []server) (stop func()) {
	before := make([]map[int]time.Duration, len(servers))
	return every(look, func() {
		for i, s := range servers {
			now := s.Waits()
			var longest time.Duration // of one thread: the others may be in nobody's way
			for thread, waited := range now {
				if before[i] != nil {
					longest = max(longest, waited-before[i][thread])
				}
			}
			if before[i] = now; longest > starved {
				_, _ = j.Write(history.Event{Kind: history.Starved, Service: service, Process: fmt.Sprint(s.Pid()), Value: int64(longest)})
			}
		}
	})
}

// every calls f each time that d has passed, until it is stopped.
func every(d time.Duration, f func()) (stop func()) {
	end := make(chan struct{})
	var ended sync.WaitGroup
	ended.Go(func() {
		ticker := time.NewTicker(d)
		defer ticker.Stop()
		for {
			select {
			case <-end:
				return
			case <-ticker.C:
				f()
			}
		}
	})
	return func() {
		close(end)
		ended.Wait()
	}
}
