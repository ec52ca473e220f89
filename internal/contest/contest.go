// Package contest is for benchmarks that compare this library with others. scripts/bench
// runs them in rounds, and compares what stands behind the last slash of their names.
package contest

import (
	"sync"
	"testing"
)

// Competitor is one of those that are compared in a topic.
type Competitor struct {
	// Name is what it is called, without slashes.
	Name string

	// Goroutines is how many it works with.
	Goroutines int

	// Op does so many operations on so many goroutines and returns when they
	// are done. [On] and [Told] make one.
	Op func(operations, goroutines int) error
}

// Run runs each competitor as the benchmark topic/name. They have done what is slow
// only once, such as connecting, before they come here.
func Run(b *testing.B, topic string, all ...Competitor) {
	for _, c := range all {
		b.Run(topic+"/"+c.Name, func(b *testing.B) {
			if err := c.Op(b.N, c.Goroutines); err != nil {
				b.Fatal(err)
			}
		})
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
