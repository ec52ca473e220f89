package compare

import (
	"sync"
	"time"

	"github.com/golockers/locker/compare/internal/history"
)

const (
	beat    = 10 * time.Millisecond
	stalled = 50 * time.Millisecond // how late a beat may be before it is told
)

// watchStalls journals when this process was not run for a while: what was late then is nobody's fault. note
// may be nil; it gets each stall that was journaled.
func watchStalls(j *history.Journal, service, process string, note func(d time.Duration)) (stop func()) {
	end := make(chan struct{})
	var ended sync.WaitGroup
	ended.Go(func() {
		ticker := time.NewTicker(beat)
		defer ticker.Stop()
		last := time.Now()
		for {
			select {
			case <-end:
				return
			case <-ticker.C:
			}
			now := time.Now()
			if late := now.Sub(last) - beat; late > stalled {
				_, _ = j.Write(history.Event{Kind: history.Stall, Service: service, Process: process, Value: int64(late)})
				if note != nil {
					note(late)
				}
			}
			last = now
		}
	})
	return func() {
		close(end)
		ended.Wait()
	}
}
