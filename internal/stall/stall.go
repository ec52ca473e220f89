// Package stall tells when a program was not run for a while: what was late then is the
// machine's fault.
package stall

import (
	"sync"
	"time"
)

// Every calls f each time that d has passed, until it is stopped.
func Every(d time.Duration, f func()) (stop func()) {
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

// Watch calls f like Every, with how late it is: that long at least the program was not run.
func Watch(d time.Duration, f func(late time.Duration)) (stop func()) {
	last := time.Now()
	return Every(d, func() {
		now := time.Now()
		late := now.Sub(last) - d
		last = now
		f(late)
	})
}

// Longest measures how late the latest of these calls is.
func Longest() (stop func() time.Duration) {
	var longest time.Duration
	end := Watch(beat, func(late time.Duration) { longest = max(longest, late) })
	return func() time.Duration {
		end()
		return longest
	}
}

const beat = 10 * time.Millisecond
