// Package contest is for benchmarks that compare this library with others on
// one machine. Whatever else the machine does meanwhile is to meet all of them:
// so they take turns in small blocks, and the median of the blocks counts.
//
// What it prints is what internal/benchtable reads: the last part of a
// benchmark's name is a competitor, what stands before it is the topic.
package contest

import (
	"slices"
	"sync"
	"testing"
	"time"
)

// Turns is how many results of each competitor [Run] reports.
const Turns = 5

// blocks is how many blocks one result is the median of.
const blocks = 11

// Competitor is one of those that take turns in a topic.
type Competitor struct {
	// Name is what it is called, without slashes. "raw" and "locker" mean
	// something to internal/benchtable.
	Name string

	// Goroutines is how many it works with.
	Goroutines int

	// Op does so many operations on so many goroutines and returns when they
	// are done. [On] and [Told] make one.
	Op func(operations, goroutines int) error

	// Target is how many times the time of raw it may take, which is reported
	// as target-time. 0: there is no target.
	Target float64
}

// Run lets the competitors of a topic take turns, a block of operations each,
// and reports the median of eleven blocks of each, in ns/op, as the benchmark
// topic/name, [Turns] times. A block has as many operations as can be expected
// to take so long, one per goroutine at the least. The benchmark ends if one of
// them fails. b.N has no meaning here.
//
// The competitors have done what is slow only once, such as connecting, before
// they come here.
func Run(b *testing.B, topic string, block time.Duration, all ...Competitor) {
	b.Helper()
	operations := make([]int, len(all))
	timed := func(i int) float64 {
		b.Helper()
		began := time.Now()
		if err := all[i].Op(operations[i], all[i].Goroutines); err != nil {
			b.Fatalf("%s: %s: %v", topic, all[i].Name, err)
		}
		return float64(time.Since(began)) / float64(operations[i])
	}
	for i, c := range all { // as many operations as a block has time for
		operations[i] = 4 * c.Goroutines
		operations[i] = max(c.Goroutines, int(float64(block)/timed(i)))
	}
	for range Turns {
		times := make([][]float64, len(all))
		for range blocks {
			for i := range all {
				times[i] = append(times[i], timed(i))
			}
		}
		for i, c := range all {
			slices.Sort(times[i])
			b.Run(topic+"/"+c.Name, func(b *testing.B) {
				b.ReportMetric(times[i][blocks/2], "ns/op")
				if c.Target != 0 {
					b.ReportMetric(c.Target, "target-time")
				}
			})
		}
	}
}

// On makes a [Competitor.Op] of one operation, by way of [Spread].
func On(op func(n int) error) func(operations, goroutines int) error {
	return func(operations, goroutines int) error { return Spread(operations, goroutines, op) }
}

// Spread runs so many operations on so many goroutines, waits for all of them,
// and returns the first error. An error does not keep the others from being run.
// n is the goroutine's number, from 0: there is never more than one operation
// with the same at a time.
func Spread(operations, goroutines int, op func(n int) error) error {
	next := make(chan struct{}, goroutines)
	errs := make(chan error, 1)
	var all sync.WaitGroup
	for n := range goroutines {
		all.Go(func() {
			for range next {
				if err := op(n); err != nil {
					select {
					case errs <- err:
					default:
					}
				}
			}
		})
	}
	for range operations {
		next <- struct{}{}
	}
	close(next)
	all.Wait()
	close(errs)
	return <-errs
}
